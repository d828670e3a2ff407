//! The rules of publications, one by one.

use std::sync::Arc;

use pg_proto::{Lsn, Oid};
use storage_format::catalog::{
    Catalog, Publication, PublicationActions, PublicationTable, RelationSchema, RowFilterText,
    encode_publications,
};
use storage_format::record::RecordKind;

use super::{
    Actions, Decision, Publications, Selection, SelectionSpec, TableName, check_supported,
};
use crate::testing::{relation, relation_oid};

const TABLE: Oid = relation_oid(0);

fn catalog(publications: &[Publication]) -> Arc<Catalog> {
    let mut catalog = Arc::new(Catalog::default());
    let mut payload = Vec::new();
    encode_publications(publications, &mut payload);
    Catalog::apply(&mut catalog, RecordKind::Publications, &payload, Lsn(8)).unwrap();
    for table in 0..4 {
        let message = relation(table, 1);
        Catalog::apply(&mut catalog, RecordKind::Relation, &message, Lsn(8)).unwrap();
    }
    catalog
}

fn of(names: &[&str]) -> SelectionSpec {
    SelectionSpec {
        publications: Publications::Named(names.iter().map(|name| (*name).to_owned()).collect()),
        ..SelectionSpec::default()
    }
}

fn decide(names: &[&str], publications: &[Publication]) -> Decision {
    let catalog = catalog(publications);
    Selection::new(of(names), &catalog)
        .decide(TABLE, &catalog)
        .clone()
}

const INSERTS: PublicationActions = PublicationActions {
    insert: true,
    update: false,
    delete: false,
    truncate: false,
};

/// A publication of the one table.
fn publication(name: &str, actions: PublicationActions) -> Publication {
    Publication {
        name: name.to_owned(),
        actions,
        tables: vec![PublicationTable {
            relation: TABLE,
            schema: "s0".to_owned(),
            name: "t0".to_owned(),
            ..PublicationTable::default()
        }],
        ..Publication::default()
    }
}

fn filtered(name: &str, actions: PublicationActions) -> Publication {
    let mut publication = publication(name, actions);
    publication.tables[0].row_filter = Some(RowFilterText::default());
    publication
}

fn listing(name: &str, columns: &[&str]) -> Publication {
    let mut publication = publication(name, PublicationActions::ALL);
    publication.tables[0].columns = Some(columns.iter().map(|one| (*one).to_owned()).collect());
    publication
}

fn all_tables(name: &str) -> Publication {
    Publication {
        name: name.to_owned(),
        all_tables: true,
        actions: PublicationActions::ALL,
        ..Publication::default()
    }
}

#[test]
fn actions_are_united_over_the_subscribed_publications_only() {
    let deletes = PublicationActions {
        delete: true,
        ..PublicationActions::default()
    };
    let publications = [publication("a", INSERTS), publication("b", deletes)];
    assert_eq!(
        decide(&["a"], &publications),
        Decision::pass(Actions::INSERT)
    );
    assert_eq!(
        decide(&["a", "b"], &publications),
        Decision::pass(Actions::INSERT | Actions::DELETE)
    );
    assert_eq!(decide(&["c"], &publications), Decision::default());
    assert_eq!(decide(&[], &publications), Decision::default());
}

#[test]
fn all_tables_and_schemas_cover_what_they_do_not_name() {
    let mut in_schema = all_tables("s");
    in_schema.all_tables = false;
    in_schema.schemas = vec!["s0".to_owned()];
    let all = Decision::pass(Actions::ALL);
    assert_eq!(decide(&["a"], &[all_tables("a")]), all);
    assert_eq!(decide(&["s"], &[in_schema.clone()]), all);
    in_schema.schemas = vec!["s1".to_owned()];
    assert_eq!(decide(&["s"], &[in_schema]), Decision::default());
}

/// The kinds of changes of which rows are judged.
fn filtered_kinds(decision: &Decision) -> Vec<RecordKind> {
    let filters = decision
        .shape
        .as_ref()
        .and_then(|shape| shape.filters.as_ref());
    [RecordKind::Insert, RecordKind::Update, RecordKind::Delete]
        .into_iter()
        .filter(|kind| filters.is_some_and(|filters| filters.judges(*kind)))
        .collect()
}

#[test]
fn a_row_filter_holds_unless_another_publication_lifts_it() {
    let only = decide(&["f"], &[filtered("f", PublicationActions::ALL)]);
    assert_eq!(only.passes, Actions::ALL);
    let all = [RecordKind::Insert, RecordKind::Update, RecordKind::Delete];
    assert_eq!(filtered_kinds(&only), all);

    let publications = [
        filtered("f", PublicationActions::ALL),
        publication("i", INSERTS),
    ];
    let inserts_lifted = decide(&["f", "i"], &publications);
    assert_eq!(inserts_lifted.passes, Actions::ALL);
    assert_eq!(filtered_kinds(&inserts_lifted), all[1..]);

    let publications = [filtered("f", PublicationActions::ALL), all_tables("a")];
    assert_eq!(
        decide(&["f", "a"], &publications),
        Decision::pass(Actions::ALL)
    );
    // The same publication names the table's schema as well.
    let mut both = filtered("f", PublicationActions::ALL);
    both.schemas = vec!["s0".to_owned()];
    assert_eq!(decide(&["f"], &[both]), Decision::pass(Actions::ALL));
}

#[test]
fn a_column_list_chooses_and_one_with_every_column_is_none() {
    let all = Decision::pass(Actions::ALL);
    assert_eq!(decide(&["c"], &[listing("c", &["second", "id"])]), all);
    let decision = decide(&["c"], &[listing("c", &["id"])]);
    assert_eq!(decision.passes, Actions::ALL);
    let shape = decision.shape.unwrap();
    assert_eq!(
        (shape.relation, shape.columns.as_deref()),
        (TABLE, Some(&[0][..]))
    );
    assert_eq!(shape.descriptions.len(), 1);
    let message = RelationSchema::from_message(&shape.descriptions[0].message).unwrap();
    assert_eq!(message.columns.len(), 1);
    assert_eq!(message.columns[0].name, "id");
    assert!(message.columns[0].is_key);
}

#[test]
fn column_lists_that_differ_are_postgresqls_error_at_any_change() {
    let inserts = Publication {
        actions: INSERTS,
        ..listing("c", &["id"])
    };
    for other in [all_tables("a"), listing("a", &["second"])] {
        let publications = [inserts.clone(), other];
        let decision = decide(&["c", "a"], &publications);
        assert_eq!(
            (decision.passes, decision.refused),
            (Actions::NONE, Actions::ALL)
        );
        assert_eq!(
            decision.refusal.unwrap().to_string(),
            "cannot use different column lists for table \"s0.t0\" in different publications"
        );
        // It is the change that fails, not the start.
        let catalog = catalog(&publications);
        assert_eq!(check_supported(&of(&["c", "a"]), &catalog), Ok(()));
    }
    let same = [inserts, listing("a", &["id"])];
    assert_eq!(decide(&["c", "a"], &same).passes, Actions::ALL);
}

#[test]
fn what_is_not_supported_is_refused_at_the_start() {
    let catalog = catalog(&[
        filtered("f", INSERTS),
        listing("c", &["id"]),
        listing("m", &["nosuch"]),
        all_tables("a"),
    ]);
    let asked_for = SelectionSpec {
        tables: vec![TableName {
            schema: "s0".to_owned(),
            name: "t0".to_owned(),
        }],
        ..of(&["m"])
    };
    assert!(check_supported(&asked_for, &catalog).is_err());
    // A column that the source's publication names comes with the next row, if it is new.
    for names in [&["a"][..], &["f"], &["c"], &["f", "a"], &["m"], &["nosuch"]] {
        assert_eq!(check_supported(&of(names), &catalog), Ok(()), "{names:?}");
    }
    assert_eq!(check_supported(&SelectionSpec::default(), &catalog), Ok(()));
    let elsewhere = SelectionSpec {
        tables: vec![TableName {
            schema: "s0".to_owned(),
            name: "t1".to_owned(),
        }],
        ..of(&["f"])
    };
    assert_eq!(check_supported(&elsewhere, &catalog), Ok(()));
}

#[test]
fn tables_are_meant_by_the_name_that_they_have_now() {
    let mut catalog = catalog(&[]);
    let spec = SelectionSpec {
        publications: Publications::Everything,
        tables: vec![TableName {
            schema: "s0".to_owned(),
            name: "t0".to_owned(),
        }],
        ..SelectionSpec::default()
    };
    let mut selection = Selection::new(spec, &catalog);
    let all = Decision::pass(Actions::ALL);
    assert_eq!(*selection.decide(TABLE, &catalog), all);
    assert_eq!(
        *selection.decide(relation_oid(1), &catalog),
        Decision::default()
    );
    // Renamed.
    let message = relation(0, 2);
    Catalog::apply(&mut catalog, RecordKind::Relation, &message, Lsn(8)).unwrap();
    selection.set_catalog(&catalog);
    assert_eq!(*selection.decide(TABLE, &catalog), Decision::default());
}

#[test]
fn a_change_of_the_publications_is_noticed() {
    let before = catalog(&[publication("a", INSERTS)]);
    let mut selection = Selection::new(of(&["a", "b"]), &before);
    assert_eq!(selection.missing(), ["b"]);
    assert_eq!(
        *selection.decide(TABLE, &before),
        Decision::pass(Actions::INSERT)
    );
    assert!(!selection.set_catalog(&catalog(&[publication("a", INSERTS)])));
    let after = catalog(&[all_tables("b")]);
    assert!(selection.set_catalog(&after));
    assert_eq!(selection.missing(), ["a"]);
    assert_eq!(selection.decided(TABLE), None);
    assert_eq!(
        *selection.decide(TABLE, &after),
        Decision::pass(Actions::ALL)
    );
}
