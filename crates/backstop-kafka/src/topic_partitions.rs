//! Converts partitions to the client's lists, and back.

use crate::message::TopicPartition;
use rdkafka::error::KafkaResult;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::{Offset, TopicPartitionList};

/// A client's list of these partitions.
pub(crate) fn to_list<'a>(
    places: impl IntoIterator<Item = &'a TopicPartition>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for place in places {
        list.add_partition(&place.topic, place.partition);
    }
    list
}

/// A client's list of these partitions, each with an offset.
pub(crate) fn to_list_at<'a>(
    places: impl IntoIterator<Item = (&'a TopicPartition, Offset)>,
) -> KafkaResult<TopicPartitionList> {
    let mut list = TopicPartitionList::new();
    for (place, offset) in places {
        list.add_partition_offset(&place.topic, place.partition, offset)?;
    }
    Ok(list)
}

/// The partitions in a client's list.
pub(crate) fn from_list(list: &TopicPartitionList) -> Vec<TopicPartition> {
    list.elements().iter().map(place).collect()
}

/// The partitions in a client's list that have an offset.
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
