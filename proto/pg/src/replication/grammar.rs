//! The grammar of replication commands (`repl_gram.y`), of all versions at once: what a version does not know
//! is for the caller to refuse.

use super::command::{Command, CommandError, CommandOption, OptionValue};
use super::lexer::{LexError, Lexer, Token};
use crate::Lsn;

/// Parses a query string. `None`: its first word is no replication command, so it is SQL
/// (`replication_scanner_is_replication_command`).
pub fn parse_command(text: &str) -> Option<Result<Command, CommandError>> {
    let (keyword, lexer) = first_word(text)?;
    Some(parse(keyword, lexer))
}

/// The first word of a replication command. A version of PostgreSQL that does not know it takes the text for SQL.
#[must_use]
pub fn command_keyword(text: &str) -> Option<&'static str> {
    first_word(text).map(|(keyword, _)| keyword)
}

fn first_word(text: &str) -> Option<(&'static str, Lexer<'_>)> {
    let mut lexer = Lexer::new(text);
    let Ok((Token::Keyword(keyword), _)) = lexer.next() else {
        return None;
    };
    let known = matches!(
        keyword,
        "IDENTIFY_SYSTEM"
            | "SHOW"
            | "READ_REPLICATION_SLOT"
            | "CREATE_REPLICATION_SLOT"
            | "ALTER_REPLICATION_SLOT"
            | "DROP_REPLICATION_SLOT"
            | "START_REPLICATION"
            | "TIMELINE_HISTORY"
            | "BASE_BACKUP"
            | "UPLOAD_MANIFEST"
    );
    known.then_some((keyword, lexer))
}

fn parse(keyword: &str, lexer: Lexer<'_>) -> Result<Command, CommandError> {
    // It is refused whatever follows, and what may follow differs between versions.
    if keyword == "BASE_BACKUP" {
        return Ok(Command::BaseBackup);
    }
    let mut parser = Parser::new(lexer)?;
    let command = match keyword {
        "IDENTIFY_SYSTEM" => Command::IdentifySystem,
        "SHOW" => Command::Show(parser.dotted_name()?),
        "READ_REPLICATION_SLOT" => Command::ReadSlot(parser.dotted_name()?),
        "CREATE_REPLICATION_SLOT" => parser.create_slot()?,
        "ALTER_REPLICATION_SLOT" => Command::AlterSlot {
            slot: parser.identifier()?,
            options: parser.option_list()?,
        },
        "DROP_REPLICATION_SLOT" => Command::DropSlot {
            slot: parser.identifier()?,
            wait: parser.accept_keyword("WAIT")?,
        },
        "START_REPLICATION" => parser.start_replication()?,
        "TIMELINE_HISTORY" => Command::TimelineHistory(parser.timeline()?),
        _ => Command::UploadManifest,
    };
    parser.accept_symbol(';')?;
    match parser.token {
        Token::End => Ok(command),
        _ => Err(parser.syntax_error()),
    }
}

/// One word ahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
}

impl<'a> Parser<'a> {
    fn new(lexer: Lexer<'a>) -> Result<Self, CommandError> {
        let mut parser = Self {
            lexer,
            token: Token::End,
        };
        parser.advance()?;
        Ok(parser)
    }

    /// Goes on to the next word and gives this one.
    fn advance(&mut self) -> Result<Token, CommandError> {
        let (token, _) = self.lexer.next().map_err(|error| {
            CommandError::new(match error {
                LexError::UnterminatedQuote => "unterminated quoted string",
                LexError::BadLsn => "invalid streaming start location",
                LexError::BadInteger => "integer is out of range",
            })
        })?;
        Ok(std::mem::replace(&mut self.token, token))
    }

    /// PostgreSQL does not say where (`replication_yyerror`).
    #[expect(
        clippy::unused_self,
        reason = "all errors of a parser are made the same way"
    )]
    fn syntax_error(&self) -> CommandError {
        CommandError::new("syntax error")
    }

    fn accept(&mut self, wanted: &Token) -> Result<bool, CommandError> {
        let found = self.token == *wanted;
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn accept_keyword(&mut self, keyword: &'static str) -> Result<bool, CommandError> {
        self.accept(&Token::Keyword(keyword))
    }

    fn accept_symbol(&mut self, symbol: char) -> Result<bool, CommandError> {
        self.accept(&Token::Symbol(symbol))
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), CommandError> {
        if self.accept(wanted)? {
            Ok(())
        } else {
            Err(self.syntax_error())
        }
    }

    fn identifier(&mut self) -> Result<String, CommandError> {
        if !matches!(self.token, Token::Identifier(_)) {
            return Err(self.syntax_error());
        }
        match self.advance()? {
            Token::Identifier(name) => Ok(name),
            _ => Err(self.syntax_error()),
        }
    }

    fn dotted_name(&mut self) -> Result<String, CommandError> {
        let mut name = self.identifier()?;
        while self.accept_symbol('.')? {
            name.push('.');
            name.push_str(&self.identifier()?);
        }
        Ok(name)
    }

    fn lsn(&mut self) -> Result<Lsn, CommandError> {
        match self.token {
            Token::Lsn(lsn) => {
                self.advance()?;
                Ok(lsn)
            }
            _ => Err(self.syntax_error()),
        }
    }

    fn timeline(&mut self) -> Result<u32, CommandError> {
        match self.token {
            Token::Integer(0) => Err(CommandError::new("invalid timeline 0")),
            Token::Integer(timeline) => {
                self.advance()?;
                Ok(timeline)
            }
            _ => Err(self.syntax_error()),
        }
    }

    fn create_slot(&mut self) -> Result<Command, CommandError> {
        let slot = self.identifier()?;
        let temporary = self.accept_keyword("TEMPORARY")?;
        if self.accept_keyword("PHYSICAL")? {
            self.create_slot_options()?;
            return Ok(Command::CreatePhysicalSlot { slot });
        }
        self.expect(&Token::Keyword("LOGICAL"))?;
        let plugin = self.identifier()?;
        let is_list = self.token == Token::Symbol('(');
        let options = self.create_slot_options()?;
        let legacy = !is_list && options.iter().all(|option| option.name != "two_phase");
        Ok(Command::CreateLogicalSlot {
            slot,
            temporary,
            plugin,
            options,
            legacy,
        })
    }

    /// A list in parentheses, or the words of version 14 and before in any order.
    fn create_slot_options(&mut self) -> Result<Vec<CommandOption>, CommandError> {
        if self.token == Token::Symbol('(') {
            return self.option_list();
        }
        let mut options = Vec::new();
        while let Token::Keyword(keyword) = self.token {
            options.push(match keyword {
                "EXPORT_SNAPSHOT" => CommandOption::text("snapshot", "export"),
                "NOEXPORT_SNAPSHOT" => CommandOption::text("snapshot", "nothing"),
                "USE_SNAPSHOT" => CommandOption::text("snapshot", "use"),
                "RESERVE_WAL" => CommandOption::bare("reserve_wal"),
                "TWO_PHASE" => CommandOption::bare("two_phase"),
                _ => return Err(self.syntax_error()),
            });
            self.advance()?;
        }
        Ok(options)
    }

    /// `( name [value], ... )`, where a keyword may also be a name.
    fn option_list(&mut self) -> Result<Vec<CommandOption>, CommandError> {
        self.list(|parser| {
            let name = match parser.token {
                Token::Keyword(keyword) => {
                    parser.advance()?;
                    keyword.to_ascii_lowercase()
                }
                _ => parser.identifier()?,
            };
            let value = match parser.token {
                Token::Identifier(_) | Token::Text(_) | Token::Integer(_) => {
                    match parser.advance()? {
                        Token::Identifier(text) | Token::Text(text) => {
                            Some(OptionValue::Text(text))
                        }
                        Token::Integer(value) => Some(OptionValue::Integer(i64::from(value))),
                        _ => None,
                    }
                }
                _ => None,
            };
            Ok(CommandOption { name, value })
        })
    }

    /// `( name ['value'], ... )`.
    fn plugin_options(&mut self) -> Result<Vec<CommandOption>, CommandError> {
        if self.token != Token::Symbol('(') {
            return Ok(Vec::new());
        }
        self.list(|parser| {
            let name = parser.identifier()?;
            let value = match parser.token {
                Token::Text(_) => match parser.advance()? {
                    Token::Text(text) => Some(OptionValue::Text(text)),
                    _ => None,
                },
                _ => None,
            };
            Ok(CommandOption { name, value })
        })
    }

    fn list(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<CommandOption, CommandError>,
    ) -> Result<Vec<CommandOption>, CommandError> {
        self.expect(&Token::Symbol('('))?;
        let mut options = vec![item(self)?];
        while self.accept_symbol(',')? {
            options.push(item(self)?);
        }
        self.expect(&Token::Symbol(')'))?;
        Ok(options)
    }

    fn start_replication(&mut self) -> Result<Command, CommandError> {
        if self.accept_keyword("SLOT")? {
            let slot = self.identifier()?;
            if self.accept_keyword("LOGICAL")? {
                let start = self.lsn()?;
                let options = self.plugin_options()?;
                return Ok(Command::StartLogical {
                    slot,
                    start,
                    options,
                });
            }
        }
        self.accept_keyword("PHYSICAL")?;
        self.lsn()?;
        if self.accept_keyword("TIMELINE")? {
            self.timeline()?;
        }
        Ok(Command::StartPhysical)
    }
}
