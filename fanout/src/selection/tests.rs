//! The rules of publications, one by one.

use std::sync::Arc;

use pg_proto::Oid;
use storage_format::catalog::{
    Catalog, Publication, PublicationActions, PublicationTable, encode_publications,
};
use storage_format::record::RecordKind;

use super::{
    Actions, Decision, Feature, Publications, Selection, SelectionSpec, TableName, check_supported,
};
use crate::testing::{relation, relation_oid};

const TABLE: Oid = relation_oid(0);

fn catalog(publications: &[Publication]) -> Arc<Catalog> {
    let mut catalog = Arc::new(Catalog::default());
    let mut payload = Vec::new();
    encode_publications(publications, &mut payload);
    Catalog::apply(&mut catalog, RecordKind::Publications, &payload).unwrap();
    for table in 0..4 {
        let message = relation(table, 1);
        Catalog::apply(&mut catalog, RecordKind::Relation, &message).unwrap();
    }
    catalog
}

fn of(names: &[&str]) -> SelectionSpec {
    SelectionSpec {
        publications: Publications::Named(names.iter().map(|name| (*name).to_owned()).collect()),
        tables: Vec::new(),
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
    publication.tables[0].row_filter = Some("id > 5".to_owned());
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

#[test]
fn a_row_filter_is_refused_unless_another_publication_lifts_it() {
    let only = decide(&["f"], &[filtered("f", PublicationActions::ALL)]);
    assert_eq!(only.passes, Actions::TRUNCATE);
    assert_eq!(only.refused, Actions::ROWS);
    let refusal = only.refusal.unwrap();
    assert_eq!(refusal.feature, Feature::RowFilter("s0.t0".to_owned()));
    assert_eq!(
        refusal.to_string(),
        "publication \"f\" has a row filter on table \"s0.t0\", which is not supported yet"
    );

    let publications = [
        filtered("f", PublicationActions::ALL),
        publication("i", INSERTS),
    ];
    let inserts_lifted = decide(&["f", "i"], &publications);
    assert_eq!(inserts_lifted.passes, Actions::INSERT | Actions::TRUNCATE);
    assert_eq!(inserts_lifted.refused, Actions::UPDATE | Actions::DELETE);

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
fn a_column_list_is_refused_unless_it_has_every_column() {
    let all = Decision::pass(Actions::ALL);
    assert_eq!(decide(&["c"], &[listing("c", &["id", "second"])]), all);
    let publications = [listing("c", &["id"]), all_tables("a")];
    let decision = decide(&["c", "a"], &publications);
    assert_eq!(
        (decision.passes, decision.refused),
        (Actions::NONE, Actions::ALL)
    );
    let feature = &decision.refusal.unwrap().feature;
    assert_eq!(*feature, Feature::ColumnList("s0.t0".to_owned()));
}

#[test]
fn what_concerns_a_whole_publication_is_refused_at_once() {
    let mut via_root = all_tables("r");
    via_root.via_root = true;
    let plain = catalog(&[via_root.clone()]);
    assert_eq!(check_supported(&of(&["r"]), &plain), Ok(()));
    via_root.has_partitioned_root = true;
    let mut generated = all_tables("g");
    generated.generated_columns = true;
    let catalog = catalog(&[
        via_root,
        generated,
        filtered("f", INSERTS),
        listing("c", &["id"]),
        all_tables("a"),
    ]);
    for name in ["r", "g", "f", "c"] {
        let refusal = check_supported(&of(&[name]), &catalog).unwrap_err();
        assert_eq!(refusal.publication, name);
    }
    for names in [&["a"][..], &["f", "a"], &["nosuch"]] {
        assert_eq!(check_supported(&of(names), &catalog), Ok(()), "{names:?}");
    }
    assert_eq!(check_supported(&SelectionSpec::default(), &catalog), Ok(()));
    let elsewhere = SelectionSpec {
        tables: vec![TableName {
            schema: "s0".to_owned(),
            name: "t1".to_owned(),
        }],
        ..of(&["c"])
    };
    assert_eq!(check_supported(&elsewhere, &catalog), Ok(()));
    let mut unknown = listing("c", &["id", "second"]);
    assert_eq!(
        check_supported(&of(&["c"]), &self::catalog(&[unknown.clone()])),
        Ok(())
    );
    unknown.tables[0].relation = Oid(9);
    let refusal = check_supported(&of(&["c"]), &self::catalog(&[unknown])).unwrap_err();
    assert_eq!(refusal.publication, "c");
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
    Catalog::apply(&mut catalog, RecordKind::Relation, &message).unwrap();
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
