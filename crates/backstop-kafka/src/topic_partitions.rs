//! Partitions in the words of the client, and back.

use crate::message::TopicPartition;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};

/// A list for the client.
pub(crate) fn to_list<'a>(
    places: impl IntoIterator<Item = &'a TopicPartition>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for place in places {
        list.add_partition(&place.topic, place.partition);
    }
    list
}

/// A list for the client, each partition with an offset.
pub(crate) fn to_list_at<'a>(
    places: impl IntoIterator<Item = (&'a TopicPartition, Offset)>,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (place, offset) in places {
        list.add_partition_offset(&place.topic, place.partition, offset)?;
    }
    Ok(list)
}

/// The partitions of a list of the client's.
pub(crate) fn from_list(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(place).collect()
}

/// The partitions of a list for which it says an offset.
pub(crate) fn offsets<C: FromIterator<(TopicPartition, i64)>>(list: &TopicPartitionList) -> C {
    let offset = |element: &TopicPartitionListElem<'_>| match (element.error(), element.offset()) {
        (Ok(()), Offset::Offset(offset)) => Some((place(element), offset)),
        _ => None,
    };
    list.elements().iter().filter_map(offset).collect()
}

fn place(element: &TopicPartitionListElem<'_>) -> TopicPartition {
    TopicPartition {
        topic: element.topic().into(),
        partition: element.partition(),
    }
}
