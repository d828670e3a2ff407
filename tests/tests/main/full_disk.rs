//! The log's file system is full under load: nothing is confirmed that is not safe, nothing is lost, and all goes on by itself
//! when there is room.

use tests::expect::assert_mentions;
use tests::scale::patience;
use tests::wait_until;

use super::disks::SmallDisk;
use super::load::Load;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_confirming_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount(256 << 20) else {
        eprintln!("skipped: this process may not mount a file system");
        return;
    };
    let mut load = Load::start(Some(&disk.log()), &[]).await;
    let create = |number| ["slot".to_owned(), "create".to_owned(), format!("n{number}")];
    for number in 0..2 {
        disk.fill();
        wait_until("the decoder waits for room", patience(), async || {
            // A segment's own room is taken in advance, and one that is sealed leaves some: it may go on for a while.
            disk.fill();
            says_that_it_waits(&load).await
        })
        .await;
        // Whether it is made or not, the registry has to find its way back.
        let refused = create(number);
        let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
        load.stage.decant.decctl(&refused);
        // The load goes on meanwhile.
        load.wait_for_commits(300).await;
        load.assert_nothing_is_confirmed_early().await;
        disk.make_room();
        load.stage.settle().await;
        let made = create(number + 100);
        let made: Vec<&str> = made.iter().map(String::as_str).collect();
        load.stage.decant.decctl_successfully(&made);
    }
    wait_until_sealed(&load).await;
    load.stage.decant.stop_decoder().await;
    load.stage.decant.start_decoder().await;
    let slots = load.stage.decant.decctl_successfully(&["slot", "list"]);
    assert_mentions(&slots, &["n100", "n101"]);
    load.finish().await;
}

/// As long as there is no room, whoever asks is told the same, wherever.
async fn says_that_it_waits(load: &Load) -> Result<(), String> {
    let decant = &load.stage.decant;
    let log = decant.status().await.log.unwrap_or_default();
    let readiness = decant.readiness().await;
    let status = decant.decctl_successfully(&["status"]);
    let metrics = decant.metrics().await;
    let said = [
        (log.trouble.as_str(), "no space left"),
        (&readiness, "503"),
        (&readiness, "waiting: no space left"),
        (&status, "trouble"),
        (&status, "no space left"),
        (&metrics, "decant_decoder_disk_full 1"),
    ];
    match said.iter().find(|(text, words)| !text.contains(words)) {
        None => Ok(()),
        Some((text, words)) => Err(format!(
            "durable up to {}, no {words:?} in:\n{text}",
            load.durable()
        )),
    }
}

/// Every segment that waits for it, whatever the load adds meanwhile.
async fn wait_until_sealed(load: &Load) {
    let raw = |name: &String| name.ends_with(".active");
    let files = load.stage.decant.segment_files();
    let waiting: Vec<String> = files.into_iter().filter(raw).collect();
    wait_until("segments are sealed again", patience(), async || {
        let mut files = load.stage.decant.segment_files();
        files.retain(|name| waiting.contains(name));
        if files.is_empty() {
            Ok(())
        } else {
            Err(files.join(", "))
        }
    })
    .await;
}
