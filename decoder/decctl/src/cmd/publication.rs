//! `decctl publication`.

use pg_proto::{Lsn, PgTimestamp};
use proto::v1::{
    DropPublicationRequest, ListPublicationsRequest, OwnPublication, OwnPublicationVersion,
    PutPublicationRequest,
};
use serde::Serialize;
use service::config::Config;

use super::source::{Source, identifier, literal};
use crate::cli::{PublicationArgs, PublicationCommand};
use crate::error::Error;
use crate::{output, rpc};

/// The queries that say what publications mean; shared with the decoder.
const STATE_SQL_14: &str = include_str!("../../../sql/state_14.sql");
const STATE_SQL_15: &str = include_str!("../../../sql/state_15.sql");

/// SQLSTATE of a right that is missing.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

#[derive(Serialize)]
struct PublicationView {
    name: String,
    definition: String,
    /// From here on it is in force as it is; not known of one that an older build made.
    from_lsn: Option<Lsn>,
    /// Oldest first, as far as they judge what is kept.
    versions: Vec<VersionView>,
}

#[derive(Serialize)]
struct VersionView {
    from_lsn: Lsn,
    /// `None`: the publication did not exist.
    definition: Option<String>,
}

impl From<OwnPublication> for PublicationView {
    fn from(publication: OwnPublication) -> Self {
        let last = publication.versions.last();
        let last = last.filter(|one| one.definition.as_ref() == Some(&publication.definition));
        Self {
            from_lsn: last.map(|one| Lsn(one.from_lsn)),
            versions: publication.versions.into_iter().map(Into::into).collect(),
            name: publication.name,
            definition: publication.definition,
        }
    }
}

impl From<OwnPublicationVersion> for VersionView {
    fn from(version: OwnPublicationVersion) -> Self {
        Self {
            from_lsn: Lsn(version.from_lsn),
            definition: version.definition,
        }
    }
}

impl PublicationView {
    fn start_text(&self) -> String {
        self.from_lsn
            .map_or_else(|| "-".to_owned(), |lsn| lsn.to_string())
    }
}

/// Runs `decctl publication ...`.
pub(crate) async fn run(config: &Config, command: PublicationCommand) -> Result<(), Error> {
    match command {
        PublicationCommand::Create(args) => put(config, &args, false).await,
        PublicationCommand::Alter(args) => put(config, &args, true).await,
        PublicationCommand::Drop { name, from } => {
            let request = DropPublicationRequest {
                name: name.clone(),
                from_lsn: from.from.map(|lsn| lsn.0),
                from_time: from.from_time.map(PgTimestamp::unix_micros),
            };
            let mut control = rpc::control(config).await?;
            let dropped = control.drop_publication(request).await?.into_inner();
            let from = Lsn(dropped.lsn);
            output::write_line(&format!("dropped publication {name} from {from} on"))
        }
        PublicationCommand::List(args) => {
            let all = list(config).await?;
            if args.json {
                return output::json(&all);
            }
            let rows = all.into_iter().map(|one| {
                let from = one.start_text();
                vec![one.name, from, one.definition]
            });
            output::table(&["PUBLICATION", "FROM", "DEFINITION"], &[], rows.collect())
        }
        PublicationCommand::Show { name, output: args } => {
            let all = list(config).await?;
            let found = all.into_iter().find(|one| one.name == name);
            let found = found.ok_or(Error::NoPublication(name))?;
            if args.json {
                return output::json(&found);
            }
            let name = identifier(&found.name);
            output::write_line(&format!("CREATE PUBLICATION {name} {};", found.definition))?;
            for version in &found.versions {
                let definition = version.definition.as_deref().unwrap_or("(none)");
                output::write_line(&format!("-- from {}: {definition}", version.from_lsn))?;
            }
            Ok(())
        }
    }
}

async fn list(config: &Config) -> Result<Vec<PublicationView>, Error> {
    let mut control = rpc::control(config).await?;
    let all = control
        .list_publications(ListPublicationsRequest {})
        .await?;
    let all = all.into_inner().publications.into_iter();
    Ok(all.map(PublicationView::from).collect())
}

async fn put(config: &Config, args: &PublicationArgs, replace: bool) -> Result<(), Error> {
    let definition = definition(args)?;
    // First, so that nothing is asked of the source in vain.
    let mut control = rpc::control(config).await?;
    let state = meaning(config, &args.name, &definition).await?;
    let request = PutPublicationRequest {
        name: args.name.clone(),
        definition,
        state,
        replace,
        from_lsn: args.start.from.map(|lsn| lsn.0),
        from_time: args.start.from_time.map(PgTimestamp::unix_micros),
    };
    let answer = control.put_publication(request).await?.into_inner();
    let (done, from) = (if replace { "altered" } else { "created" }, Lsn(answer.lsn));
    output::write_line(&format!("{done} publication {}, from {from} on", args.name))
}

/// What stands behind the name in CREATE PUBLICATION.
fn definition(args: &PublicationArgs) -> Result<String, Error> {
    let mut scope = Vec::new();
    if args.all_tables {
        scope.push("ALL TABLES".to_owned());
    }
    if !args.schemas.is_empty() {
        let names: Vec<String> = args.schemas.iter().map(|name| identifier(name)).collect();
        scope.push(format!("TABLES IN SCHEMA {}", names.join(", ")));
    }
    if !args.tables.is_empty() {
        if let Some(table) = args.tables.iter().find(|table| has_semicolon(table)) {
            return Err(Error::Definition(table.clone()));
        }
        scope.push(format!("TABLE {}", args.tables.join(", ")));
    }
    let mut options = Vec::new();
    if let Some(publish) = &args.publish {
        options.push(format!("publish = {}", literal(publish)));
    }
    if args.generated_columns {
        options.push("publish_generated_columns = stored".to_owned());
    }
    if args.via_partition_root {
        options.push("publish_via_partition_root = true".to_owned());
    }
    let with = if options.is_empty() {
        String::new()
    } else {
        format!(" WITH ({})", options.join(", "))
    };
    Ok(format!("FOR {}{with}", scope.join(", ")))
}

/// Whether a text may end a statement. Where backslashes or dollars could begin another kind of quotes, any semicolon
/// counts.
fn has_semicolon(text: &str) -> bool {
    let odd = text.contains(['\\', '$']);
    let mut quote = None;
    text.chars().any(|letter| {
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
        letter == ';' && (odd || quote.is_none())
    })
}

/// Lets the source find out what a definition means, in a transaction that leaves nothing there.
async fn meaning(config: &Config, name: &str, definition: &str) -> Result<String, Error> {
    let mut source = Source::connect_writable(config).await?;
    let version = source.row("SHOW server_version_num").await?.number(0);
    let query = if version < 150_000 {
        STATE_SQL_14
    } else {
        STATE_SQL_15
    };
    source
        .execute("BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
        .await?;
    let create = format!("CREATE PUBLICATION {} {definition}", identifier(name));
    let created = source.execute(&create).await;
    let state = match created {
        Ok(()) => {
            let sql = format!("SELECT state::text FROM ({query}) AS s (state)");
            source.row(&sql).await.map(|row| row.text(0))
        }
        Err(error) => Err(explained(error, &config.source.user)),
    };
    // Whatever happened: the connection ends behind it anyway.
    source.execute("ROLLBACK").await?;
    state
}

fn explained(error: Error, role: &str) -> Error {
    match error {
        Error::Source(source) if source.code() == Some(INSUFFICIENT_PRIVILEGE) => {
            Error::MayNotPublish {
                role: role.to_owned(),
                source,
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::PublicationStart;

    fn args(tables: &[&str]) -> PublicationArgs {
        PublicationArgs {
            name: "p".to_owned(),
            tables: tables.iter().map(|one| (*one).to_owned()).collect(),
            schemas: Vec::new(),
            all_tables: false,
            publish: Some("insert, update".to_owned()),
            generated_columns: false,
            via_partition_root: false,
            start: PublicationStart {
                from: None,
                from_time: None,
            },
        }
    }

    #[test]
    fn definitions_are_what_create_publication_takes() {
        let text = definition(&args(&["a (id) WHERE (id > 1)", "b"])).unwrap();
        assert_eq!(
            text,
            "FOR TABLE a (id) WHERE (id > 1), b WITH (publish = 'insert, update')"
        );
        let schemas = PublicationArgs {
            schemas: vec!["s".to_owned(), "t u".to_owned()],
            publish: None,
            ..args(&[])
        };
        assert_eq!(
            definition(&schemas).unwrap(),
            "FOR TABLES IN SCHEMA \"s\", \"t u\""
        );
    }

    #[test]
    fn a_second_statement_is_refused() {
        for text in [
            "a; drop table b",
            "a WHERE (v = E'\\''); x",
            "a WHERE (v = $$;$$)",
        ] {
            assert!(definition(&args(&[text])).is_err(), "{text}");
        }
        for text in ["a WHERE (v = ';')", "\"a;b\"", "a WHERE (v = 'it''s;')"] {
            assert!(definition(&args(&[text])).is_ok(), "{text}");
        }
    }
}
