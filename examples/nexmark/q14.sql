-- Which bids are in a range of euros, at what time of day, and how often is there a letter c in them?
--
-- Same as elsewhere. The stream starts half a minute before eight, so that there are bids of two times of day.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000,
                                  start => '2015-07-15 07:59:30');

SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bid_time_type,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
  FROM bid
 WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;
