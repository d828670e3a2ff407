//! Random expressions.

use std::collections::BTreeSet;

use super::catalog::{Producers, Syntax};
use super::constants::constants;
use super::families::Family;
use super::random::Random;
use super::types::Type;

/// Columns of each type, in their order in the family.
pub(super) const COLUMNS_PER_TYPE: usize = 2;

/// Makes expressions over the columns `c0`, `c1`, …
pub(super) struct Generator<'a> {
    pub(super) family: &'a Family,
    pub(super) producers: &'a Producers,
    pub(super) random: Random,
    /// Functions that were used.
    pub(super) used: BTreeSet<u32>,
}

impl Generator<'_> {
    pub(super) fn filter(&mut self) -> String {
        let depth = 1 + self.random.below(3);
        self.boolean(depth)
    }

    fn types(&self, name: &str) -> Vec<usize> {
        let types = self.family.types.iter().enumerate();
        types
            .filter(|(_, one)| one.name == name)
            .map(|(index, _)| index)
            .collect()
    }

    fn any_type(&mut self) -> Type {
        *self.random.pick(self.family.types)
    }

    fn literal(&mut self, name: &str) -> String {
        if self.random.percent(5) {
            return format!("null::{name}");
        }
        let types = self.types(name);
        let one = self.family.types[*self.random.pick(&types)];
        let value = *self.random.pick(one.values);
        format!("'{}'::{name}", value.replace("''", "'").replace('\'', "''"))
    }

    fn leaf(&mut self, name: &str) -> String {
        if self.random.percent(60) {
            return self.column(name);
        }
        self.literal(name)
    }

    fn column(&mut self, name: &str) -> String {
        let types = self.types(name);
        let one = *self.random.pick(&types);
        let column = one * COLUMNS_PER_TYPE + self.random.below(COLUMNS_PER_TYPE);
        format!("c{column}")
    }

    fn produced(&mut self, name: &str, depth: usize) -> String {
        let Some(producers) = self.producers.get(name) else {
            return self.leaf(name);
        };
        let producer = self.random.pick(producers).clone();
        self.used.insert(producer.oid);
        let args = producer.args.iter().enumerate().map(|(at, arg)| {
            if producer.constants.contains(&at) {
                (*self.random.pick(constants(producer.oid, at))).to_owned()
            } else {
                self.value(arg, depth - 1)
            }
        });
        let args: Vec<String> = args.collect();
        match (&producer.syntax, args.as_slice()) {
            (Syntax::Infix(name), [left, right]) => {
                format!("({left} OPERATOR(pg_catalog.{name}) {right})")
            }
            (Syntax::Prefix(name), [arg]) => format!("(OPERATOR(pg_catalog.{name}) {arg})"),
            (Syntax::Call(name), args) => format!("{name}({})", args.join(", ")),
            _ => panic!("{producer:?}"),
        }
    }

    fn value(&mut self, name: &str, depth: usize) -> String {
        if name == "boolean" {
            return self.boolean(depth);
        }
        if depth == 0 {
            return self.leaf(name);
        }
        match self.random.below(20) {
            0..10 => self.produced(name, depth),
            10..14 => self.leaf(name),
            14 => {
                let (condition, one, two) = (
                    self.boolean(depth - 1),
                    self.value(name, depth - 1),
                    self.value(name, depth - 1),
                );
                format!("CASE WHEN {condition} THEN {one} ELSE {two} END")
            }
            15 => {
                let test = self.any_type().name;
                let arg = self.leaf(test);
                let one = self.literal(test);
                let (two, three) = (self.value(name, depth - 1), self.leaf(name));
                format!("CASE {arg} WHEN {one} THEN {two} ELSE {three} END")
            }
            16 => format!(
                "coalesce({}, {})",
                self.value(name, depth - 1),
                self.leaf(name)
            ),
            17 => format!(
                "nullif({}, {})",
                self.value(name, depth - 1),
                self.leaf(name)
            ),
            18 => format!(
                "greatest({}, {})",
                self.value(name, depth - 1),
                self.leaf(name)
            ),
            _ => format!(
                "least({}, {}, {})",
                self.leaf(name),
                self.value(name, depth - 1),
                self.leaf(name)
            ),
        }
    }

    fn boolean(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.leaf("boolean");
        }
        let name = self.any_type().name;
        let inner = depth - 1;
        match self.random.below(32) {
            28.. => self.keyed(name, inner),
            0..12 => self.produced("boolean", depth),
            12 | 13 => format!("({} AND {})", self.boolean(inner), self.boolean(inner)),
            14 | 15 => format!("({} OR {})", self.boolean(inner), self.boolean(inner)),
            16 => format!("(NOT {})", self.boolean(inner)),
            17 => format!("({} IS NULL)", self.value(name, inner)),
            18 => format!("({} IS NOT NULL)", self.value(name, inner)),
            19 => {
                let tests = [
                    "TRUE",
                    "NOT TRUE",
                    "FALSE",
                    "NOT FALSE",
                    "UNKNOWN",
                    "NOT UNKNOWN",
                ];
                let test = *self.random.pick(&tests);
                format!("({} IS {test})", self.boolean(inner))
            }
            20 => {
                let not = if self.random.percent(50) { "NOT " } else { "" };
                let (left, right) = (self.value(name, inner), self.value(name, inner));
                format!("({left} IS {not}DISTINCT FROM {right})")
            }
            21 | 22 => self.any_all(name, inner),
            23 => {
                let list: Vec<String> = (0..3).map(|_| self.literal(name)).collect();
                let not = if self.random.percent(30) { "NOT " } else { "" };
                format!(
                    "({} {not}IN ({}))",
                    self.value(name, inner),
                    list.join(", ")
                )
            }
            24 => {
                let (low, high) = (self.leaf(name), self.leaf(name));
                format!("({} BETWEEN {low} AND {high})", self.value(name, inner))
            }
            25 => {
                let other = self.any_type().name;
                let operator = *self.random.pick(&["<", "<=", ">", ">=", "=", "<>"]);
                let (one, two) = (self.value(name, inner), self.leaf(other));
                let (three, four) = (self.leaf(name), self.leaf(other));
                format!("(({one}, {two}) {operator} ({three}, {four}))")
            }
            _ => self.value_of_case(inner),
        }
    }

    /// What an index answers: a column that equals constants, with anything before or behind it.
    fn keyed(&mut self, name: &str, inner: usize) -> String {
        let column = self.column(name);
        let equal = match self.random.below(3) {
            0 => format!("{column} = {}", self.literal(name)),
            1 => format!("{} = {column}", self.literal(name)),
            _ => format!(
                "{column} IN ({}, {})",
                self.literal(name),
                self.literal(name)
            ),
        };
        let operator = *self.random.pick(&["AND", "AND", "OR"]);
        let other = if self.random.percent(25) {
            // PostgreSQL's to evaluate, and an error where there is a value.
            format!("(1 / num_nulls({}) = 1)", self.column(name))
        } else {
            self.boolean(inner)
        };
        match self.random.below(3) {
            0 => format!("({equal})"),
            1 => format!("({equal} {operator} {other})"),
            _ => format!("({other} {operator} {equal})"),
        }
    }

    fn value_of_case(&mut self, inner: usize) -> String {
        let (condition, one, two) = (
            self.boolean(inner),
            self.boolean(inner),
            self.boolean(inner),
        );
        format!("CASE WHEN {condition} THEN {one} WHEN {two} THEN false END")
    }

    fn any_all(&mut self, name: &str, inner: usize) -> String {
        let operator = *self.random.pick(&["=", "<>", "<", ">="]);
        let quantifier = *self.random.pick(&["ANY", "ALL"]);
        let left = self.value(name, inner);
        let array = format!("{name}[]");
        if !self.types(&array).is_empty() && self.random.percent(60) {
            let right = self.value(&array, inner);
            return format!("({left} {operator} {quantifier} ({right}))");
        }
        let elements: Vec<String> = (0..2).map(|_| self.leaf(name)).collect();
        format!(
            "({left} {operator} {quantifier} (ARRAY[{}]))",
            elements.join(", ")
        )
    }
}
