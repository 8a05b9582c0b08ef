// counts.ts: numbers with a unit.

/** A count with a decimal prefix and a unit: 4.10 GFLOP, 25 FLOP. */
export function formatCount(count: number, unit = ''): string {
  const prefixes = ['', 'k', 'M', 'G', 'T']
  const power = count < 1 ? 0 : Math.min(prefixes.length - 1, Math.floor(Math.log10(count) / 3))
  return `${(count / 1000 ** power).toFixed(power === 0 ? 0 : 2)} ${prefixes[power]}${unit}`.trim()
}
