// student-quantile.ts: how wide confidence intervals of means are.

/** 97.5 % of a normal variable lie below it. */
const normalQuantile = 1.959963984540054

/** Student's t of 97.5 % for 1 to 10 degrees of freedom. */
const fewDegrees = [12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814]

/**
 * The quantile of 97.5 % of Student's t: from a table up to ten degrees of freedom, between whole numbers of them linear in
 * 1 / degrees, then by the expansion of Cornish and Fisher (Abramowitz and Stegun 26.7.5), right to 1e-4. NaN below 1.
 */
export function studentQuantile(degrees: number): number {
  if (!(degrees >= 1)) return Number.NaN
  if (degrees <= fewDegrees.length) {
    const [below, above] = [Math.floor(degrees), Math.ceil(degrees)]
    const share = below === above ? 0 : (1 / below - 1 / degrees) / (1 / below - 1 / above)
    return fewDegrees[below - 1]! * (1 - share) + fewDegrees[above - 1]! * share
  }
  const x = normalQuantile
  const terms = [
    (x ** 3 + x) / 4,
    (5 * x ** 5 + 16 * x ** 3 + 3 * x) / 96,
    (3 * x ** 7 + 19 * x ** 5 + 17 * x ** 3 - 15 * x) / 384,
    (79 * x ** 9 + 776 * x ** 7 + 1482 * x ** 5 - 1920 * x ** 3 - 945 * x) / 92_160,
  ]
  return terms.reduce((sum, term, i) => sum + term / degrees ** (i + 1), x)
}
