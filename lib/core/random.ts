// random.ts: seeded random numbers, identical on every machine and backend.

/**
 * Uniform numbers in [0, 1) with 24 random bits: xoshiro128** (Blackman and Vigna 2018), its state filled from `seed`
 * by splitmix32.
 */
export function randomGenerator(seed: number): () => number {
  let mixer = seed >>> 0
  const splitmix = (): number => {
    mixer = (mixer + 0x9e3779b9) | 0
    let word = Math.imul(mixer ^ (mixer >>> 16), 0x21f0aaad)
    word = Math.imul(word ^ (word >>> 15), 0x735a2d97)
    return word ^ (word >>> 15)
  }
  let [a, b, c, d] = [splitmix(), splitmix(), splitmix(), splitmix()]
  const rotate = (word: number, bits: number): number => (word << bits) | (word >>> (32 - bits))
  return () => {
    const result = Math.imul(rotate(Math.imul(b, 5), 7), 9)
    const shifted = b << 9
    c ^= a
    d ^= b
    b ^= c
    a ^= d
    c ^= shifted
    d = rotate(d, 11)
    return (result >>> 8) / 2 ** 24
  }
}

/** `count` numbers of U(−1/√fanIn, 1/√fanIn): Kaiming's uniform initialisation with a = √5, as PEFT's lora_A. */
export function kaimingUniform(random: () => number, count: number, fanIn: number): Float32Array {
  const bound = 1 / Math.sqrt(fanIn)
  const values = new Float32Array(count)
  for (let i = 0; i < count; i++) values[i] = (2 * random() - 1) * bound
  return values
}

/** `count` normal numbers of the given standard deviation (Box and Muller). */
export function normal(random: () => number, count: number, deviation: number): Float32Array {
  const values = new Float32Array(count)
  for (let i = 0; i < count; i += 2) {
    const radius = deviation * Math.sqrt(-2 * Math.log(1 - random()))
    const angle = 2 * Math.PI * random()
    values[i] = radius * Math.cos(angle)
    if (i + 1 < count) values[i + 1] = radius * Math.sin(angle)
  }
  return values
}
