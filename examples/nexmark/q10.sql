-- Keep a log of all bids in files, with the day and the minute of each.
--
-- `strandline run --out DIR` writes Parquet files, each result exactly once. Elsewhere the day and the minute name
-- directories; here they are columns, and a file has the bids of a batch.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, price, date_time, extra,
       to_char(date_time, 'YYYY-MM-DD') AS day, to_char(date_time, 'HH24:MI') AS minute
  FROM bid;
