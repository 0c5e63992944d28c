-- All bids on five chosen items.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT * FROM bid
 WHERE auction = 1007 OR auction = 1020 OR auction = 2001 OR auction = 2019 OR auction = 1087;
