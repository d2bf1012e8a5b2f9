//! What happened in the last week, minute by minute: kept in the store, bounded, for charts.
