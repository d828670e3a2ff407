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
            // A segment's own room is taken in advance: it may go on for a while.
            disk.fill();
            let log = load.stage.decant.status().await.log.unwrap_or_default();
            if log.trouble.contains("no space left") {
                Ok(())
            } else {
                Err(format!("durable up to {}", load.durable()))
            }
        })
        .await;
        let readiness = load.stage.decant.readiness().await;
        assert_mentions(&readiness, &["503", "waiting: no space left"]);
        let status = load.stage.decant.decctl_successfully(&["status"]);
        assert_mentions(&status, &["trouble", "no space left"]);
        let metrics = load.stage.decant.metrics().await;
        assert_mentions(&metrics, &["decant_decoder_disk_full 1"]);
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
    wait_until("segments are sealed again", patience(), async || {
        let files = load.stage.decant.segment_files();
        let raw = files.iter().filter(|name| name.ends_with(".active"));
        let raw = raw.count();
        if raw <= 2 {
            Ok(())
        } else {
            Err(raw.to_string())
        }
    })
    .await;
    load.stage.decant.stop_decoder().await;
    load.stage.decant.start_decoder().await;
    let slots = load.stage.decant.decctl_successfully(&["slot", "list"]);
    assert_mentions(&slots, &["n100", "n101"]);
    load.finish().await;
}
