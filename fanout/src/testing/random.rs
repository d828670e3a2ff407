//! Random logs and selections.

use proptest::collection::vec;
use proptest::prelude::*;
use storage_format::catalog::{Publication, PublicationActions, PublicationTable, RowFilterText};
use storage_format::record::RecordKind;

use super::messages::{name_of, relation_oid, schema_of};
use crate::selection::{Publications, SelectionSpec, TableName};

/// Something that a log is made of.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Transaction {
        origin: bool,
        /// Its rows, up to its first other item, were written before this many of the commits before it.
        overtaken: usize,
        items: Vec<Item>,
    },
    LoneMessage,
    Progress,
    FinishSegment,
    Cut,
}

/// Something in a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Row(RecordKind, u8),
    Truncate(Vec<u8>),
    Message,
    Relation(u8, u8),
    Type(u8),
    Publications(usize),
    Cut,
}

fn row_kind() -> impl Strategy<Value = RecordKind> {
    prop::sample::select(&[RecordKind::Insert, RecordKind::Update, RecordKind::Delete])
}

fn item() -> impl Strategy<Value = Item> {
    prop_oneof![
        12 => (row_kind(), 0_u8..4).prop_map(|(kind, table)| Item::Row(kind, table)),
        1 => prop::sample::subsequence(vec![0_u8, 1, 2, 3], 1..=4).prop_map(Item::Truncate),
        1 => Just(Item::Message),
        1 => (0_u8..4, 0_u8..3).prop_map(|(table, version)| Item::Relation(table, version)),
        1 => (0_u8..2).prop_map(Item::Type),
        1 => (0..publication_states().len()).prop_map(Item::Publications),
        4 => Just(Item::Cut),
    ]
}

pub(crate) fn actions() -> impl Strategy<Value = Vec<Action>> {
    let transaction = (prop::bool::weighted(0.2), 0_usize..4, vec(item(), 0..12)).prop_map(
        |(origin, overtaken, mut items)| {
            // A log has no empty transactions.
            if items.iter().all(|item| matches!(item, Item::Cut)) {
                items.push(Item::Row(RecordKind::Insert, 0));
            }
            Action::Transaction {
                origin,
                overtaken,
                items,
            }
        },
    );
    let action = prop_oneof![
        10 => transaction,
        1 => Just(Action::LoneMessage),
        1 => Just(Action::Progress),
        1 => Just(Action::FinishSegment),
        4 => Just(Action::Cut),
    ];
    vec(action, 0..25)
}

fn publication(name: &str, actions: PublicationActions, tables: &[u8]) -> Publication {
    let tables = tables.iter().map(|table| PublicationTable {
        relation: relation_oid(*table),
        schema: schema_of(*table),
        name: name_of(*table, 0),
        ..PublicationTable::default()
    });
    Publication {
        name: name.to_owned(),
        actions,
        tables: tables.collect(),
        ..Publication::default()
    }
}

/// Whether [`of_thirds`] is true of a row.
pub(crate) const fn is_third(id: u32) -> bool {
    id < 60 && id.is_multiple_of(3)
}

/// A filter `id = 0 OR id = 3 OR ...`.
fn of_thirds() -> RowFilterText {
    let ids = (0..60).filter(|id| is_third(*id));
    let terms: Vec<String> = ids
        .map(|id| {
            format!(
                "{{OPEXPR :opno 96 :opfuncid 65 :opresulttype 16 :opretset false :opcollid 0 :inputcollid 0 :args (\
                 {{VAR :varno 1 :varattno 1 :vartype 23 :vartypmod -1 :varcollid 0 :varlevelsup 0 :location -1}} \
                 {{CONST :consttype 23 :consttypmod -1 :constcollid 0 :constlen 4 :constbyval true :constisnull false \
                 :location -1 :constvalue 4 [ {id} 0 0 0 0 0 0 0 ]}}) :location -1}}"
            )
        })
        .collect();
    let tree = format!(
        "{{BOOLEXPR :boolop or :args ({}) :location -1}}",
        terms.join(" ")
    );
    RowFilterText {
        sql: "one of the thirds".to_owned(),
        tree,
    }
}

/// What the source's publications may be: one after the other, as somebody changes them.
pub(crate) fn publication_states() -> Vec<Vec<Publication>> {
    let all = PublicationActions::ALL;
    let inserts = PublicationActions {
        insert: true,
        ..PublicationActions::default()
    };
    let everything = Publication {
        all_tables: true,
        ..publication("a", all, &[])
    };
    let in_schema = Publication {
        schemas: vec!["s1".to_owned()],
        ..publication("b", all, &[])
    };
    let mut listing = publication("a", all, &[0, 2]);
    listing.tables[0].columns = Some(vec!["id".to_owned()]);
    let mut thirds = publication("a", all, &[0, 1, 2]);
    for table in &mut thirds.tables {
        table.row_filter = Some(of_thirds());
    }
    let mut listed_thirds = listing.clone();
    listed_thirds.tables[0].row_filter = Some(of_thirds());
    vec![
        vec![thirds.clone()],
        vec![listed_thirds, publication("b", inserts, &[1])],
        vec![thirds, publication("b", inserts, &[2, 3])],
        vec![listing.clone(), publication("b", all, &[1])],
        vec![everything.clone(), publication("b", all, &[1])],
        vec![publication("a", all, &[0, 2]), in_schema],
        vec![
            publication("a", inserts, &[0, 1, 2]),
            publication("b", all, &[3]),
        ],
        vec![everything],
        vec![listing],
        vec![],
    ]
}

pub(crate) fn selection() -> impl Strategy<Value = SelectionSpec> {
    let named = prop::sample::subsequence(vec!["a", "b", "none"], 1..=3)
        .prop_map(|names| Publications::Named(names.into_iter().map(str::to_owned).collect()));
    let publications = prop_oneof![2 => Just(Publications::Everything), 3 => named];
    let tables = prop_oneof![
        3 => Just(vec![]),
        1 => prop::sample::subsequence(vec![0_u8, 1, 2, 3], 1..=3),
    ];
    (publications, tables).prop_map(|(publications, tables)| SelectionSpec {
        publications,
        tables: tables
            .into_iter()
            .map(|table| TableName {
                schema: schema_of(table),
                name: name_of(table, 0),
            })
            .collect(),
        ..SelectionSpec::default()
    })
}
