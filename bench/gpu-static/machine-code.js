// machine-code.js: instructions of sm_90 and later as far as their loads, waits, branches and tensor instructions go. NVIDIA
// documents none of it; test/bench/gpu-static.test.ts compiles kernels whose loads and waits are known.

/** @typedef {'load' | 'copy' | 'commit' | 'depbar' | 'tensor' | 'branch' | 'exit' | 'local' | 'other'} Kind */

/**
 * @typedef {object} Instruction
 * @property {Kind} kind a `copy` goes from global to shared memory by itself; `commit` ends a group of them
 * @property {number} bytes that a thread loads
 * @property {number} scoreboard that counts it until its result is there; 7: none
 * @property {number} waits bits of the scoreboards that must be at zero before it is issued
 * @property {number} remaining groups of copies, or counts of a scoreboard, that a `depbar` leaves
 * @property {number} target index of the instruction that a branch leads to
 * @property {boolean} isConditional
 */

/** The lower nine bits of an instruction; those above tell where its operands are. @type {Readonly<Record<number, Kind>>} */
const kinds = {
  384: 'load', // LD
  385: 'load', // LDG
  430: 'copy', // LDGSTS
  431: 'commit', // LDGDEPBAR
  282: 'depbar', // DEPBAR
  60: 'tensor', // HMMA
  55: 'tensor', // IMMA
  63: 'tensor', // DMMA
  122: 'tensor', // QMMA
  127: 'tensor', // OMMA
  327: 'branch', // BRA
  333: 'exit', // EXIT
  336: 'exit', // RET
  387: 'local', // LDL
  391: 'local', // STL
}

/** Bytes of the sizes u8, s8, u16, s16, 32, 64, 128 and 256. */
const sizes = [1, 1, 2, 2, 4, 8, 16, 32]
const instructionBytes = 16
const always = 7
/** BRA.U, whose predicate is that of a warp. */
const uniformBranch = 0x547

/** @param {DataView} code @param {number} capability 90 for 9.0 @returns {Instruction[]} */
export function decode(code, capability) {
  const sizeOf = { load: 9, copy: capability < 100 ? 9 : 10 }
  return Array.from({ length: code.byteLength / instructionBytes }, (_, i) => {
    const [w0, w1, w2, w3] = /** @type {[number, number, number, number]} */ (
      [0, 4, 8, 12].map(at => code.getUint32(i * instructionBytes + at, true))
    )
    const kind = kinds[w0 & 0x1ff] ?? 'other'
    const isGuarded = ((w0 >>> 12) & 15) !== always
    return {
      kind,
      bytes: kind === 'load' || kind === 'copy' ? Number(sizes[(w2 >>> sizeOf[kind]) & 7]) : 0,
      scoreboard: (w3 >>> 14) & 7,
      waits: (w3 >>> 20) & 63,
      remaining: (w1 >>> 6) & 63,
      target: i + 1 + offset(w0, w1, w2) / instructionBytes,
      isConditional:
        isGuarded || (w0 & 0xfff) === uniformBranch || (kind === 'branch' && ((w2 >>> 23) & 15) !== always),
    }
  })
}

/** Bytes from the next instruction to the target of a branch. @param {number} w0 @param {number} w1 @param {number} w2 */
function offset(w0, w1, w2) {
  const high = ((w2 << 14) >> 14) * 2 ** 30 + (w1 >>> 2)
  return 4 * (high * 256 + ((w0 >>> 16) & 255))
}
