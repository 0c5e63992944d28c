-- The judge knew no row time of the rows of a finished session, which come when it ends.
CREATE STREAM s (k INT, v INT, ts BIGINT) SOURCE rows((1, 5, 0), (2, 3, 1), (1, 4, 2), (2, 8, 9), (1, 1, 20)) ORDERED BY ts;
CREATE TABLE r (k INT, w INT) NON RETROACTIVE;
CREATE TABLE p (k INT, w INT, since BIGINT, till BIGINT) NON RETROACTIVE VALID FROM since UNTIL till;
INSERT INTO r VALUES (1, 10), (2, 20) AT TIMESTAMP '1970-01-01 00:00:00.000003';
UPDATE r SET w = 11 WHERE k = 1 AT TIMESTAMP '1970-01-01 00:00:00.000006';
INSERT INTO p VALUES (1, 7, 5, NULL), (1, 8, 0, 6), (2, 9, 3, 5), (1, 6, 6, 7);
SELECT t.v, t.window_start, r.w FROM SESSION(s PARTITION BY k, ts, 4 MICROSECONDS) t LEFT JOIN r ON t.k = r.k;
SELECT t.v, p.w FROM SESSION(s PARTITION BY k, ts, 4 MICROSECONDS) t LEFT JOIN p ON t.k = p.k;
SELECT t.v, (SELECT MAX(p.w) FROM p WHERE p.k = t.k) AS most FROM SESSION(s PARTITION BY k, ts, 4 MICROSECONDS) t;
CREATE VIEW j AS SELECT s.k, s.ts AS ts, r.w FROM s LEFT JOIN r FOR SYSTEM_TIME AS OF s.ts AS r ON s.k = r.k;
SELECT t.k, t.w FROM SESSION(j PARTITION BY k, ts, 4 MICROSECONDS) t;
