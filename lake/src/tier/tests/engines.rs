//! pyiceberg against the REST catalog on a loopback port.
//!
//! Needs a Python with pyiceberg and pyarrow, named by `COMPAT_PYTHON`. Without one the test says so and passes, except
//! where `CI=true`.

use std::process::Command;

use arrow::array::RecordBatch;
use axum::Router;
use weir_model::SystemClock;

use super::super::*;
use super::world::World;
use crate::catalog::rest::router;
use crate::convert::test_system_columns;
use crate::convert::tests::all_types;
use crate::schema::log_schema;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pyiceberg_check.py");

fn python() -> Option<String> {
    let python = std::env::var("COMPAT_PYTHON").ok().filter(|path| !path.is_empty());
    if python.is_none() {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "COMPAT_PYTHON must name a Python with pyiceberg and pyarrow"
        );
        eprintln!("SKIPPED: set COMPAT_PYTHON to a Python with pyiceberg and pyarrow to run this test");
    }
    python
}

/// A table with a column of every type, written as tiering does.
async fn pour_all_types(world: &World) {
    let (fields, columns) = all_types(200, 7919);
    let log = log_schema(&fields);
    let mut all = test_system_columns(0, 200);
    all.extend(columns);
    let batch = RecordBatch::try_new(Arc::clone(&log), all).expect("a batch");
    let committer = Committer::open(
        Arc::clone(&world.catalog),
        Arc::clone(&world.store),
        world.storage.clone(),
        Arc::new(SystemClock),
        topic_table("types"),
        TopicId::random(),
    )
    .await
    .expect("opens");
    let (table, marker) = committer.prepare(TableKind::Columns, &log).await.expect("prepares");
    let schema = table.metadata.current_schema().clone();
    let mapping = Arc::new(TableMapping::new("types", TableKind::Columns, &schema, &log).expect("a mapping"));
    let pending = committer.begin(&table).await.expect("a plan");
    let folder = pending.data_folder();
    let mut writer = PartitionWriter::new(world.storage.clone(), mapping, schema, &folder, 0, WriteOptions::default());
    writer.write(&batch).await.expect("writes");
    let files = writer.finish().await.expect("files");
    let ranges = vec![PlannedRange { partition: 0, start: 0, end: 200 }];
    committer.commit(pending, &table, &marker, ranges, files).await.expect("commits").expect("is committed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pyiceberg_reads_topics_and_owns_the_other_namespaces() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let world = World::over(LakeStorage::open_folder(folder.path()).expect("opens")).await;
    pour_all_types(&world).await;
    world.log.append(0, 1000);
    world.log.append(1, 10);
    let tierer = Arc::new(world.tierer());
    let hooks = Arc::new(PourOnLoad::new(Arc::clone(&tierer), Duration::from_secs(30)));
    let app = Router::new().nest("/iceberg", router(Arc::clone(&world.catalog), &world.storage, hooks));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let output = tokio::task::spawn_blocking(move || {
        Command::new(python).arg(SCRIPT).arg(format!("http://{address}/iceberg")).output().expect("python starts")
    })
    .await
    .expect("python ends");
    server.abort();
    assert!(
        output.status.success(),
        "pyiceberg_check.py failed:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    world.log.append(0, 5);
    tierer.pour(world.topic()).await.expect("pours on after what others did");
    world.expect_same_as_log(&[1005, 10]).await;
}
