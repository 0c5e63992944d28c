-- What does a fixed table say of each bid?
--
-- Elsewhere the table is looked up when a bid is processed. Here it is a stream whose rows are all older than the bids and
-- stay for ever; one that changes would be declared VALID FROM … UNTIL …. Such a table usually comes from file().
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

-- The numbers from 0 to 9999, each with itself as its value.
CREATE STREAM side_input (value BIGINT, since TIMESTAMP)
  SOURCE rate(total => 10000, rows_per_second => 10000, start => '2015-07-14 00:00:00', pace => false)
  ORDERED BY since;

SELECT b.auction, b.bidder, b.price, b.date_time, s.value
  FROM bid AS b JOIN side_input WINDOW(RANGE UNBOUNDED) AS s ON b.auction % 10000 = s.value;
