// Every operation in every weight format and several sizes on the GPU agrees with the CPU: bit for bit for casts and
// quantizers, within the rounding of f32 sums for the rest. DGX_SPARK_GPU_SIZES=small leaves out the large ones.
import { openKernels } from 'dgx-spark/kernels'
import { verifySizes } from '#lib/diagnostics/verify/values.js'
import { verifyKernels } from '#lib/diagnostics/verify.js'
import { gpuTests } from '../fixtures/gpu-suite/gpu.js'

/** @import { VerifySizes } from '#lib/diagnostics/verify/values.js' */
/** @import { Claims } from '../fixtures/gpu-suite/tap.js' */

/** @type {VerifySizes[]} */
const small = [
  verifySizes,
  { tokens: 1, rows: 1, cols: 16, rank: 1 },
  { tokens: 3, rows: 7, cols: 29, rank: 2 },
  { tokens: 65, rows: 129, cols: 80, rank: 17 },
  { tokens: 12, rows: 257, cols: 80, rank: 6 },
]
/** @type {VerifySizes[]} */
const large = [
  { tokens: 1, rows: 4099, cols: 4112, rank: 16 },
  { tokens: 16, rows: 1024, cols: 2048, rank: 64 },
  { tokens: 259, rows: 515, cols: 1040, rank: 8 },
  { tokens: 1031, rows: 127, cols: 333, rank: 5 },
]
const sizes = process.env.DGX_SPARK_GPU_SIZES === 'small' ? small : [...small, ...large]

/** @param {Claims} t @param {VerifySizes} size */
async function agree(t, size) {
  const reference = await openKernels({ backend: 'cpu' })
  const cuda = await openKernels({ backend: 'cuda' })
  for (const { op, variant, status, error, tolerance, reason } of await verifyKernels(
    cuda,
    reference,
    size,
  )) {
    const name = `${op} ${variant}`
    if (status === 'unsupported') t.skip(name, 'CUDA has no such kernel')
    else t.ok(status === 'passed', name, `${reason}: ${error}, allowed are ${tolerance}`)
  }
}

const name = (/** @type {VerifySizes} */ { tokens, rows, cols, rank }) =>
  `T${tokens} ${rows}x${cols} r${rank}`
await gpuTests(
  Object.fromEntries(sizes.map(size => [name(size), (/** @type {Claims} */ t) => agree(t, size)])),
)
