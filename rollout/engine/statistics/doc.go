// Package statistics compares what was measured of the update revision with what was
// measured of the stable revision in the same window. It is pure: the same values give the
// same verdict.
//
// # The tests
//
// A [Proportion] is a number of requests of a total. Two of them are compared by Fisher's
// exact test at every size: it takes 3 ms at 1e9 requests. A score test above some
// size would save nothing. Its p-value is too small in the far tail of unequal totals, and
// where two tests meet, one error more may raise p. The bound of the effect is Newcombe's
// hybrid score interval (Statistics in Medicine 17, 1998, method 10).
//
// [Samples] are values over time. They are compared by the Mann-Whitney test. Its permutation
// distribution is exact, with ties, by the shift algorithm of Streitberg and Röhmel (1986), up
// to 50 values a side. Above that it is a normal one, corrected for ties and continuity. The
// effect is the median of all differences (Hodges and Lehmann, 1963). Its bound comes from
// the distribution without ties, and holds with ties too (Lehmann, Nonparametrics, 1975).
//
// All tests are one-sided. Harm is positive in the direction that the [Rule] calls worse.
// Values whose worse direction is lower are compared the other way round.
//
// # The verdict
//
// A measurement fails if harm is significant and at least [Rule.By]. A window is judged
// several times while it grows, so each judgement may spend a part of 1 - confidence only:
// see [Rule.Level].
package statistics
