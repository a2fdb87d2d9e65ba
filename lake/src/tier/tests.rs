//! Each row exactly once, whatever fails when.

mod engines;
mod faults;
mod transactions;
mod world;

use iceberg::{TableRequirement, TableUpdate};
use weir_storage::ColdTier;

use super::*;
use crate::catalog::TableChange;
use crate::catalog::ownership::MARKER;
use faults::Moment;
use world::World;

#[tokio::test]
async fn what_is_poured_reads_back_the_same_from_the_lake() {
    let world = World::new().await;
    world.log.append(0, 3000);
    world.log.append(1, 10);
    let report = world.tierer().pour(world.topic()).await.expect("pours");
    assert_eq!(report.rows, 3010);
    assert_eq!(report.ends, BTreeMap::from([(0, Offset::ZERO.plus(3000)), (1, Offset::ZERO.plus(10))]));
    world.expect_same_as_log(&[3000, 10]).await;
    world.log.append(0, 500);
    assert_eq!(world.tierer().pour(world.topic()).await.expect("pours").rows, 500);
    assert_eq!(world.tierer().pour(world.topic()).await.expect("pours").commits, 0, "there is nothing left to pour");
    world.expect_same_as_log(&[3500, 10]).await;
}

#[tokio::test]
async fn a_backlog_beyond_one_commit_takes_several() {
    let world = World::new().await;
    world.log.append(0, 5000);
    let options = TierOptions { read_bytes: 64 << 10, commit_bytes: 128 << 10, ..TierOptions::default() };
    let report = world.tierer_with(options).pour(world.topic()).await.expect("pours");
    assert!(report.commits > 1, "{report:?}");
    assert_eq!(report.rows, 5000);
    world.expect_same_as_log(&[5000, 0]).await;
}

#[tokio::test]
async fn a_stretch_without_rows_is_settled_once_and_the_next_goes_on_there() {
    let world = World::new().await;
    // Before the table has any row, between rows, and after the last.
    world.log.append_gap(0, 3);
    let report = world.tierer().pour(world.topic()).await.expect("pours");
    assert_eq!((report.rows, report.ends.get(&0)), (0, Some(&Offset::ZERO.plus(3))));
    assert_eq!(world.tierer().pour(world.topic()).await.expect("pours").commits, 0, "nothing lags any more");
    world.log.append(0, 10);
    world.log.append_gap(0, 2);
    world.log.append_gap(1, 1);
    let report = world.tierer().pour(world.topic()).await.expect("pours");
    assert_eq!(report.rows, 10);
    assert_eq!(report.ends, BTreeMap::from([(0, Offset::ZERO.plus(15)), (1, Offset::ZERO.plus(1))]));
    world.log.append_gap(1, 4);
    let report = world.tierer().pour(world.topic()).await.expect("pours");
    assert_eq!(report.ends, BTreeMap::from([(0, Offset::ZERO.plus(15)), (1, Offset::ZERO.plus(5))]));
    assert_eq!(world.tierer().pour(world.topic()).await.expect("pours").commits, 0);
    let rows = world.read_all(0, 15).await;
    let offsets = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(offsets, (3..13).collect::<Vec<i64>>());
    world.expect_no_orphans().await;
}

#[tokio::test]
async fn manifests_are_merged_so_that_their_list_stays_short() {
    let world = World::new().await;
    let tierer = world.tierer();
    for _ in 0..80 {
        world.log.append(0, 3);
        tierer.pour(world.topic()).await.expect("pours");
    }
    let table = world.table().await;
    let manifests = crate::commit::snapshot::current_manifests(&world.storage.file_io(), &table.metadata)
        .await
        .expect("the manifest list");
    assert!(manifests.len() <= 33, "{} manifests", manifests.len());
    world.expect_same_as_log(&[240, 0]).await;
}

#[tokio::test]
async fn old_snapshots_leave_with_their_manifests_and_no_row_is_lost() {
    let world = World::new().await;
    let tierer = world.tierer();
    for _ in 0..230 {
        world.log.append(0, 2);
        world.clock.advance(120_000);
        tierer.pour(world.topic()).await.expect("pours");
    }
    let snapshots = world.table().await.metadata.snapshots().len();
    assert!((100..200).contains(&snapshots), "{snapshots} snapshots");
    world.expect_no_orphans().await;
    world.expect_same_as_log(&[460, 0]).await;
}

/// Kills the process at every single operation on the store, the catalog and the files, before and after its effect, and
/// starts another over what was left.
#[tokio::test]
async fn a_crash_at_any_operation_loses_and_doubles_nothing() {
    for moment in [Moment::Before, Moment::After] {
        let mut crashes = 0;
        for at in 0.. {
            let world = World::new().await;
            world.log.append(0, 50);
            world.tierer().pour(world.topic()).await.expect("the first pour is undisturbed");
            world.log.append(0, 40);
            world.log.append(1, 7);
            let dying = world.dying_at(at, moment).await;
            let died = dying.tierer().pour(world.topic()).await.is_err();
            drop(dying);
            let report = world.tierer().pour(world.topic()).await.expect("the next process pours");
            assert_eq!(
                report.ends,
                BTreeMap::from([(0, Offset::ZERO.plus(90)), (1, Offset::ZERO.plus(7))]),
                "{moment:?} {at}"
            );
            world.expect_same_as_log(&[90, 7]).await;
            world.expect_no_orphans().await;
            if !died {
                break;
            }
            crashes += 1;
        }
        assert!(crashes > 10, "only {crashes} crashes: the faults do not reach the steps");
    }
}

/// As above, and before the next process starts, somebody compacts the table: the base of a pending plan is gone.
#[tokio::test]
async fn a_compaction_after_a_crash_loses_and_doubles_nothing() {
    for moment in [Moment::Before, Moment::After] {
        for at in 0.. {
            let world = World::new().await;
            world.log.append(0, 50);
            world.tierer().pour(world.topic()).await.expect("the first pour is undisturbed");
            world.log.append(0, 40);
            let dying = world.dying_at(at, moment).await;
            let died = dying.tierer().pour(world.topic()).await.is_err();
            drop(dying);
            world.rewrite_all_files_into_one().await;
            world.tierer().pour(world.topic()).await.expect("the next process pours");
            world.expect_same_as_log(&[90, 0]).await;
            world.expect_no_orphans().await;
            if !died {
                break;
            }
        }
    }
}

/// One operation fails, once, and the same process goes on: replies are lost, puts time out.
#[tokio::test]
async fn a_failing_operation_loses_and_doubles_nothing() {
    for moment in [Moment::Before, Moment::After] {
        for at in 0.. {
            let world = World::new().await;
            world.log.append(0, 50);
            let failing = world.failing_once_at(at, moment).await;
            let tierer = failing.tierer();
            let mut errors = 0;
            for rows in [0, 5] {
                world.log.append(0, rows);
                while let Err(error) = tierer.pour(world.topic()).await {
                    errors += 1;
                    assert!(errors < 2, "{moment:?} {at}: one fault, a second failure: {error}");
                }
            }
            world.expect_same_as_log(&[55, 0]).await;
            world.expect_no_orphans().await;
            if !failing.faults.hit() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_fenced_committer_stops_and_its_plan_is_not_lost() {
    let world = World::new().await;
    world.log.append(0, 10);
    let old = world.tierer();
    old.pour(world.topic()).await.expect("pours");
    let new = world.tierer();
    world.log.append(0, 10);
    new.pour(world.topic()).await.expect("takes over");
    world.log.append(0, 10);
    let error = old.pour(world.topic()).await.expect_err("the old one is fenced");
    assert!(matches!(error, LakeError::Fenced { .. }), "{error}");
    new.pour(world.topic()).await.expect("pours");
    world.expect_same_as_log(&[30, 0]).await;
}

#[tokio::test]
async fn a_topic_made_again_under_the_same_name_stops_loudly() {
    let world = World::new().await;
    world.log.append(0, 10);
    world.tierer().pour(world.topic()).await.expect("pours");
    world.log.make_again();
    world.log.append(0, 3);
    let error = world.tierer().pour(world.topic()).await.expect_err("another topic's table");
    assert!(matches!(error, LakeError::OtherTopic { .. }), "{error}");
    let renamed = topic_table("old-orders");
    world.catalog.rename(&topic_table("orders"), &renamed).await.expect("renames");
    world.tierer().pour(world.topic()).await.expect("starts afresh");
    world.expect_same_as_log(&[3, 0]).await;
}

#[tokio::test]
async fn a_marker_lost_from_the_properties_is_found_in_the_summary() {
    let world = World::new().await;
    world.log.append(0, 10);
    world.tierer().pour(world.topic()).await.expect("pours");
    let change = TableChange {
        ident: topic_table("orders"),
        requirements: Vec::<TableRequirement>::new(),
        updates: vec![
            TableUpdate::RemoveProperties { removals: vec![MARKER.to_owned()] },
            TableUpdate::SetProperties { updates: HashMap::from([("owner".to_owned(), "dana".to_owned())]) },
        ],
    };
    world.catalog.commit(vec![change]).await.expect("a careless hand");
    world.log.append(0, 10);
    assert_eq!(world.tierer().pour(world.topic()).await.expect("pours").rows, 10);
    world.expect_same_as_log(&[20, 0]).await;
}

#[tokio::test]
async fn rows_are_found_after_others_rewrote_the_files() {
    let world = World::new().await;
    let tierer = world.tierer();
    for _ in 0..3 {
        world.log.append(0, 200);
        world.log.append(1, 100);
        tierer.pour(world.topic()).await.expect("pours");
    }
    world.rewrite_all_files_into_one().await;
    world.expect_same_as_log(&[600, 300]).await;
    world.log.append(0, 50);
    assert_eq!(tierer.pour(world.topic()).await.expect("pours on").rows, 50);
    world.expect_same_as_log(&[650, 300]).await;
}

#[tokio::test]
async fn two_columns_of_many_cost_a_fraction_of_the_bytes() {
    let world = World::new().await;
    world.log.append(0, 20_000);
    world.tierer().pour(world.topic()).await.expect("pours");
    let all = world.bytes_of_a_scan(None).await;
    let few = world.bytes_of_a_scan(Some(&[0, 7])).await;
    assert!(few * 4 < all, "two columns read {few} bytes, all of them {all}");
}

#[tokio::test]
async fn a_reader_that_reads_on_fetches_nothing_twice() {
    let world = World::new().await;
    world.log.append(0, 20_000);
    world.tierer().pour(world.topic()).await.expect("pours");
    let large = world.bytes_of_a_scan(None).await;
    let small = world.bytes_of_reads(0, 20_000, None, 16 << 10).await;
    assert!(small <= large + (64 << 10), "small reads fetched {small} bytes, large ones {large}");
    let one = world.bytes_of_reads(19_000, 19_010, None, 1 << 20).await;
    assert!(one * 2 < large, "ten rows fetched {one} bytes of {large}");
}

#[tokio::test]
async fn a_timestamp_is_found_in_the_lake() {
    let world = World::new().await;
    world.log.append(0, 1000);
    let tierer = world.tierer();
    tierer.pour(world.topic()).await.expect("pours");
    world.log.append(0, 1000);
    tierer.pour(world.topic()).await.expect("pours");
    let reader = world.reader();
    let partition = PartitionId { topic: world.topic(), index: 0 };
    let find = async |timestamp| {
        reader
            .offset_for_timestamp(partition, Offset::ZERO, Offset::ZERO.plus(2000), timestamp)
            .await
            .expect("searches")
    };
    let base = 1_700_000_000_000;
    assert_eq!(find(0).await, Some((Offset::ZERO, base)));
    assert_eq!(find(base + 1500).await, Some((Offset::ZERO.plus(1500), base + 1500)));
    assert_eq!(find(base + 2000).await, None);
}

#[tokio::test]
async fn many_loads_at_once_share_one_pour() {
    let world = World::new().await;
    world.log.append(0, 100);
    let tierer = Arc::new(world.tierer());
    let hooks = Arc::new(PourOnLoad::new(tierer, Duration::from_secs(30)));
    let loads = (0..50).map(|_| {
        let hooks = Arc::clone(&hooks);
        async move { hooks.before_load(&topic_table("orders")).await.expect("the table is the topic's own") }
    });
    futures::future::join_all(loads).await;
    let table = world.table().await;
    assert_eq!(table.metadata.snapshots().len(), 1);
    assert!(world.log.reads() < 10, "{} reads of the log", world.log.reads());
}

#[tokio::test]
async fn a_new_column_of_the_topic_is_added_to_the_table() {
    let world = World::new().await;
    world.log.append(0, 20);
    world.tierer().pour(world.topic()).await.expect("pours");
    world.log.add_column();
    world.log.append(0, 20);
    world.tierer().pour(world.topic()).await.expect("pours the wider rows");
    let table = world.table().await;
    assert!(table.metadata.current_schema().field_by_name("note").is_some());
    let rows = world.read_all(0, 40).await;
    let notes = rows.column_by_name("note").expect("the new column");
    assert_eq!(notes.null_count(), 20, "rows older than the column have none");
}
