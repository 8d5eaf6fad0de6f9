//! Tests that a configuration starts a server if `config check` accepts it, and that the server
//! refuses any other with the message of the check.

use crate::support::Launch;
use flash::Rng;

/// The alternatives for each part of a configuration, most of them valid. A test combines them at
/// random.
const PARTS: &[&[&str]] = &[
    &["", "", "workers = 2\n", "cpus = [0]\n", "cpus = [900]\n", "workers = 3\ncpus = [0]\n"],
    &[
        "[[device]]\nname = \"d\"\nspec = \"mem:4MiB\"\n",
        "[[device]]\nname = \"d\"\nspec = \"file:FOLDER/new?size=4MiB\"\n",
        "[[device]]\nname = \"d\"\nspec = \"file:FOLDER/there\"\n",
        "[[device]]\nname = \"d\"\nspec = \"file:FOLDER/there?size=64MiB\"\n",
        "[[device]]\nname = \"d\"\nspec = \"file:FOLDER/there/below?size=4MiB\"\n",
    ],
    &[
        "",
        "",
        "[[device]]\nname = \"e\"\nspec = \"null:1GiB\"\nmodel = \"a\"\n",
        "[[device]]\nname = \"d\"\nspec = \"null:1GiB\"\n",
        "[[device]]\nname = \"e\"\nspec = \"file:FOLDER/there\"\n",
    ],
    &[
        "",
        "[[namespace]]\ndevice = \"d\"\nsize = \"2MiB\"\n",
        "[[namespace]]\ndevice = \"d\"\nsize = \"8MiB\"\n",
    ],
    &["[[tenant]]\nname = \"t\"\n", "[[tenant]]\nname = \"t\"\nweight = 7\n"],
    &[
        "[[listen]]\nurl = \"reflex://127.0.0.1:0\"\n",
        "[[listen]]\nurl = \"reflex://127.0.0.1:0?tenant=t\"\n",
        "[[listen]]\nurl = \"reflex://127.0.0.1:0?tenant=u\"\n",
        "[[listen]]\nurl = \"reflex+unix:FOLDER/socket\"\n",
    ],
    &[
        "",
        "[[listen]]\nurl = \"nvme-tcp://127.0.0.1:0\"\n",
        "[[listen]]\nurl = \"reflex+unix:FOLDER/socket\"\n",
        "[[listen]]\nurl = \"reflex://0.0.0.0:0\"\n",
    ],
    &[
        "",
        "[[subsystem]]\n",
        "[[subsystem]]\nnqn = \"nqn.x:s\"\ntenant = \"t\"\nnamespaces = [1]\n",
        "[[subsystem]]\nana = [{ listener = 2, state = \"change\" }]\n",
        "[[subsystem]]\ntenant = \"zz\"\n",
        "[[subsystem]]\nnamespaces = [1, 1]\n",
        "[[subsystem]]\nnqn = \"foo\"\n",
    ],
    &[
        "",
        "[[host]]\nnqn = \"nqn.x:h\"\ntenant = \"t\"\n",
        "[[host]]\nnqn = \"nqn.x:h\"\nkey = \"xx\"\n",
    ],
    &["", "", "[authentication]\ngroups = [\"none\"]\n", "[authentication]\ngroups = []\n"],
    &[
        "",
        "[[access]]\nfrom = \"anyone\"\nrights = \"read\"\n",
        "[[access]]\ntoken = \"t\"\nrights = \"all\"\n",
    ],
    &["", "", "[limits]\ndrain_seconds = 1\n", "[limits]\ntenants = 1\n"],
];

const SEED: u64 = 7;
const CONFIGURATIONS: usize = 150;

#[test]
fn what_a_check_accepts_starts_and_what_it_refuses_does_not() {
    let mut chance = Rng::new(SEED);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..CONFIGURATIONS {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("there"), vec![0; 4 << 20]).unwrap();
        // One part in four is any, the others are right.
        let part = |parts: &&[&'static str]| match chance.within(0..=3) {
            0 => parts[chance.within(0..=parts.len() as u64 - 1) as usize],
            _ => parts[chance.within(0..=1) as usize],
        };
        let text: String = PARTS.iter().map(part).collect();
        let text = text.replace("FOLDER", &folder.path().display().to_string());
        let (code, said) = Launch::config(&text).with("--check").fail();
        if code == 0 {
            accepted += 1;
            Launch::config(&text).start();
            continue;
        }
        refused += 1;
        let (code, again) = Launch::config(&text).fail();
        // Both name their file, which is another.
        let words = |said: &str| -> Vec<String> {
            let lines =
                said.lines().map(|line| line.split_once(".tmp").map_or(line, |(_, rest)| rest));
            lines
                .map(|line| line.trim_start_matches(|c: char| c.is_alphanumeric()).to_owned())
                .collect()
        };
        assert_eq!((code, words(&again)), (1, words(&said)), "{text}");
    }
    assert!(
        accepted > CONFIGURATIONS / 10 && refused > CONFIGURATIONS / 10,
        "{accepted} {refused}"
    );
}
