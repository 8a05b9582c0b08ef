// philox.ts: random words that a counter names: the same ones in any order, on every machine.

/** The upper 32 bits of a · b. */
function high(a: number, b: number): number {
  const [a0, a1, b0, b1] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16]
  const middle = a1 * b0 + ((a0 * b0) >>> 16)
  const carried = a0 * b1 + (middle & 0xffff)
  return (a1 * b1 + Math.floor(middle / 2 ** 16) + Math.floor(carried / 2 ** 16)) >>> 0
}

/** Four words of 32 bits: Philox4x32 with ten rounds (Salmon et al. 2011). */
export function philox(counter: readonly number[], key: readonly number[]): number[] {
  let [a, b, c, d] = counter as [number, number, number, number]
  let [left, right] = key as [number, number]
  for (let round = 0; round < 10; round++) {
    const [lowA, highA] = [Math.imul(a, 0xd2511f53), high(a, 0xd2511f53)]
    const [lowC, highC] = [Math.imul(c, 0xcd9e8d57), high(c, 0xcd9e8d57)]
    a = (highC ^ b ^ left) >>> 0
    b = lowC >>> 0
    c = (highA ^ d ^ right) >>> 0
    d = lowA >>> 0
    left = (left + 0x9e3779b9) >>> 0
    right = (right + 0xbb67ae85) >>> 0
  }
  return [a, b, c, d]
}
