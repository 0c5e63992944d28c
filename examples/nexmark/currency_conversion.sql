-- What are the prices of incoming bids in euro?
--
-- The thesis calls a function DolToEuro(price); db.function() makes one of Python code. Here the rate stands in the query.
-- No window: a bid is in the answer at its instant.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, 0.89 * price AS euro, bidder FROM bid;
