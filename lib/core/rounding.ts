// rounding.ts: clamping and rounding half to even.

/** The nearest integer, the even one of two. */
export function roundHalfEven(x: number): number {
  const floor = Math.floor(x)
  const rest = x - floor
  if (rest !== 0.5) return rest < 0.5 ? floor : Math.ceil(x)
  return floor % 2 === 0 ? floor : floor + 1
}

/** Limits `value` to [min, max]. */
export const clamp = (value: number, min: number, max: number): number => Math.min(Math.max(value, min), max)
