-- Which channel is a bid from, by its name or its address?
--
-- Same as elsewhere. Bids that tell neither way are left out.
CREATE STREAM bid SOURCE nexmark('bid', events => 100000, rate => 1000);

SELECT auction, bidder, price, channel, channel_id
  FROM (SELECT auction, bidder, price, channel,
               CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1'
                                   WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
                                   ELSE substring(url FROM '(?:&|^)channel_id=([^&]*)') END AS channel_id
          FROM bid) AS known
 WHERE channel_id IS NOT NULL;
