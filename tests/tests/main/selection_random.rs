//! Random definitions of publications, from a seed.

/// Numbers that a seed gives (SplitMix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Some of them, in order; never none.
    pub(crate) fn some<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> Vec<&'a T> {
        let mut chosen: Vec<&T> = all.iter().copied().filter(|_| self.one_in(3)).collect();
        if chosen.is_empty() {
            chosen.push(all[self.below(all.len())]);
        }
        chosen
    }
}

/// Tables of `TABLES` in `selection.rs`: name, columns that a list must have, those that it may have.
const LISTS: &[(&str, &[&str], &[&str])] = &[
    ("s1.a", &["id"], &["x", "y", "z"]),
    ("s2.c", &["k", "u"], &["id", "t"]),
    ("s1.gen", &["id"], &["v", "t"]),
    ("s1.leaf2", &["id", "r"], &["x", "y"]),
    ("s2.leaf4", &["id", "r"], &["x", "y"]),
];
const ROOTS: &[(&str, &[&str], &[&str])] = &[
    ("s2.root", &["id", "r"], &["x", "y"]),
    ("s2.mid", &["id", "r"], &["x", "y"]),
];

/// Row filters by table: of the key, so that it may publish what it likes; the last ones are PostgreSQL's to evaluate.
const FILTERS: &[(&str, &[&str])] = &[
    (
        "s1.a",
        &[
            "id > 2",
            "id in (1, 10, 72)",
            "id % 2 = 0 or id = 3",
            "ln(id + 1) > 1",
        ],
    ),
    (
        "s1.b",
        &[
            "v like 't%'",
            "v is null",
            "id < 2 or length(v) = 3",
            "v ~ '[o]'",
        ],
    ),
    (
        "s2.c",
        &[
            "u = 'u2'",
            "k between 2 and 3",
            "u <> 'moved'",
            "u similar to 'u[24]'",
        ],
    ),
    ("s2.leaf1", &["id = 1", "r + id > 3", "sqrt(id) < 2"]),
    ("s2.leaf4", &["id <> 2", "false"]),
];
const ROOT_FILTERS: &[(&str, &[&str])] = &[
    (
        "s2.root",
        &[
            "id < 50",
            "r = 1 or id = 2",
            "case r when 3 then id > 1 else id > 2 end",
            "log(id + r) > 0.5",
        ],
    ),
    ("s2.mid", &["id >= 2", "r = 4"]),
];

/// `CREATE PUBLICATION` with this name.
pub(crate) fn publication(random: &mut Random, name: &str, major: u32) -> String {
    let via_root = random.one_in(2);
    let scope = match random.below(6) {
        0 => "all tables".to_owned(),
        1 if major >= 15 => format!("tables in schema {}", random.some(&["s1", "s2"]).join(", ")),
        2 if major >= 15 => format!(
            "tables in schema s1, table {}",
            table(random, false, false, major)
        ),
        _ => {
            let mut tables: Vec<String> = Vec::new();
            for _ in 0..=random.below(4) {
                let one = table(random, via_root, major >= 15, major);
                let name = one.split(' ').next().unwrap().to_owned();
                if tables
                    .iter()
                    .all(|known| known.split(' ').next() != Some(&name))
                {
                    tables.push(one);
                }
            }
            format!("table {}", tables.join(", "))
        }
    };
    let actions = if random.one_in(2) {
        "insert, update, delete, truncate".to_owned()
    } else {
        random
            .some(&["insert", "update", "delete", "truncate"])
            .join(", ")
    };
    let generated = match random.below(2) {
        0 if major >= 18 => ", publish_generated_columns = stored",
        _ => "",
    };
    format!(
        "create publication {name} for {scope} with (publish = '{actions}', \
         publish_via_partition_root = {via_root}{generated})"
    )
}

fn table(random: &mut Random, via_root: bool, lists: bool, major: u32) -> String {
    let plain = [
        "s1.a", "s1.b", "s2.c", "s1.gen", "s2.root", "s2.mid", "s2.leaf1", "s1.leaf2", "s2.leaf4",
    ];
    if lists && random.one_in(3) {
        let filters = if via_root && random.one_in(2) {
            ROOT_FILTERS
        } else {
            FILTERS
        };
        let (name, filters) = filters[random.below(filters.len())];
        return format!("{name} where ({})", filters[random.below(filters.len())]);
    }
    if !lists || random.one_in(2) {
        return plain[random.below(plain.len())].to_owned();
    }
    let listed = if via_root && random.one_in(2) {
        ROOTS[random.below(ROOTS.len())]
    } else {
        LISTS[random.below(LISTS.len())]
    };
    let (name, keys, others) = listed;
    let mut columns: Vec<&str> = keys.to_vec();
    // A list of all columns is a case of its own.
    if random.one_in(4) {
        columns.extend(others);
    } else {
        columns.extend(random.some(others));
    }
    if name == "s1.gen" && major >= 18 && random.one_in(2) {
        columns.push("g");
    }
    format!("{name} ({})", columns.join(", "))
}
