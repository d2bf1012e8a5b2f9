//! A topic on the mock cluster, or on real brokers.

use backstop_kafka::KafkaSettings;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

const WAIT: Duration = Duration::from_secs(30);

/// The mock cluster waits for three seconds before the first members get partitions; a shorter
/// session ends before that.
pub(crate) const SESSION: Duration = Duration::from_secs(4);

/// Where to find real brokers.
const ADDRESS: &str = "BACKSTOP_KAFKA_BROKERS";

pub(crate) type Mock = MockCluster<'static, DefaultProducerContext>;

/// Brokers with one topic, and a group that reads it.
pub(crate) struct Brokers {
    pub(crate) address: String,
    pub(crate) topic: String,
    pub(crate) group: String,
    pub(crate) partitions: i32,
    /// Nothing for real ones.
    pub(crate) mock: Option<Mock>,
    producer: BaseProducer,
    onlooker: BaseConsumer,
}

impl Brokers {
    /// A new topic under this name.
    pub(crate) async fn with_topic(name: &str, partitions: i32) -> Self {
        let real = std::env::var(ADDRESS).ok();
        let mock = if real.is_none() {
            Some(MockCluster::new(3).expect("a mock cluster"))
        } else {
            None
        };
        let bootstrap = mock.as_ref().map(MockCluster::bootstrap_servers);
        let address = real.or(bootstrap).expect("the one or the other");
        let topic = format!("{name}-{}", std::process::id());
        let group = format!("{topic}-group");
        let config = |name: &str, value: &str| {
            let mut config = ClientConfig::new();
            config.set("bootstrap.servers", &address).set(name, value);
            config
        };
        if let Some(mock) = &mock {
            mock.create_topic(&topic, partitions, 3).expect("a topic");
        } else {
            let admin = config("client.id", "tests").create().expect("a client");
            create(&admin, &topic, partitions).await;
        }
        let producer = config("linger.ms", "5").create().expect("a producer");
        let onlooker = config("group.id", &group).create().expect("a consumer");
        Self {
            address,
            topic,
            group,
            partitions,
            mock,
            producer,
            onlooker,
        }
    }

    /// The mock cluster, for a test that needs it; nothing on real brokers, where it ends at once.
    pub(crate) async fn mock_with_topic(name: &str, partitions: i32) -> Option<Self> {
        let brokers = Self::with_topic(name, partitions).await;
        brokers.mock.is_some().then_some(brokers)
    }

    pub(crate) fn mock(&self) -> &Mock {
        self.mock.as_ref().expect("a mock cluster")
    }

    pub(crate) fn settings(&self) -> KafkaSettings {
        settings(&self.address, &self.topic, &self.group)
    }

    /// Sends the numbers of a range, one after another to each partition.
    pub(crate) fn produce(&self, numbers: Range<u64>) {
        for number in numbers {
            let (key, payload) = (format!("key-{}", number % 17), number.to_string());
            let partition =
                i32::try_from(number % u64::from(self.partitions.unsigned_abs())).expect("few");
            let record = BaseRecord::to(&self.topic)
                .partition(partition)
                .key(&key)
                .payload(&payload);
            self.producer
                .send(record)
                .map_err(|(error, _)| error)
                .expect("room in the producer");
        }
        self.producer.flush(WAIT).expect("all delivered");
    }

    /// What the group has committed, of each partition of which it has.
    pub(crate) fn committed(&self) -> BTreeMap<i32, i64> {
        let deadline = Instant::now() + WAIT;
        let list = loop {
            let mut list = TopicPartitionList::new();
            list.add_partition_range(&self.topic, 0, self.partitions - 1);
            match self.onlooker.committed_offsets(list, WAIT) {
                Ok(list) => break list,
                // A group that is new may have no coordinator yet.
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        let committed = list
            .elements()
            .into_iter()
            .filter_map(|element| match element.offset() {
                Offset::Offset(offset) => Some((element.partition(), offset)),
                _ => None,
            });
        committed.collect()
    }

    /// How many records the group has committed.
    pub(crate) fn committed_records(&self) -> i64 {
        self.committed().values().sum()
    }
}

/// Settings that make things happen often: small batches, tight bounds, short waits.
pub(crate) fn settings(address: &str, topic: &str, group: &str) -> KafkaSettings {
    let mut settings = KafkaSettings::new(address, [topic], group);
    settings.batch_records_max = 10;
    settings.batch_wait = Duration::from_millis(5);
    settings.partition_uncommitted_max = 40;
    settings.partition_waiting_max = 20;
    settings.session_timeout = SESSION;
    settings.commit_every = Duration::from_millis(20);
    settings.lag_every = Duration::from_millis(200);
    settings.properties.set("fetch.wait.max.ms", "20");
    settings.properties.set("reconnect.backoff.max.ms", "500");
    settings
}

async fn create(admin: &AdminClient<DefaultClientContext>, topic: &str, partitions: i32) {
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().operation_timeout(Some(WAIT));
    let created = admin
        .create_topics([&topic], &options)
        .await
        .expect("an answer");
    assert!(created.iter().all(Result::is_ok), "{created:?}");
}
