// gemv.js: one token through a weight that comes from main memory, in every format. The rate counts weights. The peer
// of f32 is ONNX Runtime's MatMul, that of the other formats the faster of the two in f32.
import { nearProduct } from '../checks.js'
import { coldWeight } from '../cold.js'
import { faster } from '../harness.js'
import { held } from '../operands.js'
import { uniform } from '../random.js'
import { transpose } from './gemm.js'
import { storedWeights } from './linear.js'

/** @import { Kernels, Weight } from 'dgx-spark/kernels' */
/** @import { Case, Side } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

const size = 4096
const copies = 17 // of the peer's f32 weight: more than 1 GB

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* gemv(kernels, peer) {
  if (kernels.backend !== 'cpu') return
  const w = uniform(size * size, 2)
  const x = uniform(size, 3)
  const [f32, ...others] = storedWeights(w, size, size)
  if (!f32) return
  const own = await coldCase(kernels, f32, x)
  const theirs = peer && (await coldPeer(peer, w, x))
  yield { ...own.bench, ...(theirs && { peer: theirs }) }
  /** @type {Side} */
  const ours = { name: 'f32', run: own.bench.run }
  const fastest = theirs ? await faster(theirs, ours) : ours
  for (const weight of [...others, int8(f32)]) {
    const cold = await coldCase(kernels, weight, x)
    yield { ...cold.bench, peer: fastest }
    cold.dispose()
  }
  own.dispose()
}

/** @param {Kernels} kernels @param {Weight} stored @param {Float32Array} x */
async function coldCase(kernels, stored, x) {
  const cold = await coldWeight(kernels, stored)
  await held(kernels, x)
  const y = await held(kernels, new Float32Array(size))
  /** @type {Case} */
  const bench = {
    name: 'gemv cold',
    shape: `T1 ${size}x${size}`,
    dtype: stored.format,
    sizes: { tokens: 1, rows: size, cols: size },
    elements: size * size,
    bytes: stored.data.byteLength,
    bandwidth: 'read',
    run: () => kernels.run('linear', { weight: cold.next(), tokens: 1, x, y }),
    check: () => nearProduct(stored, x, y),
  }
  return { bench, dispose: () => cold.dispose() }
}

/** @param {Peer} peer @param {Float32Array} w @param {Float32Array} x @returns {Promise<Side>} */
async function coldPeer(peer, w, x) {
  const matmul = await peer.matmul(1, size, size)
  const transposed = transpose(w, size, size)
  const weights = Array.from({ length: copies }, () => transposed.slice())
  let turn = 0
  return {
    name: `${peer.name} f32`,
    spins: true,
    run: () => matmul(x, weights[turn++ % copies] ?? transposed),
  }
}

/** A weight in rows of integers with a scale each. @param {Weight} weight @returns {Weight} */
function int8({ rows, cols, data }) {
  const rowScale = new Float32Array(rows)
  const codes = new Int8Array(rows * cols)
  for (let r = 0; r < rows; ++r) {
    const row = Float32Array.from(data.subarray(r * cols, (r + 1) * cols))
    const scale = row.reduce((a, b) => Math.max(a, Math.abs(b)), 0) / 127
    rowScale[r] = scale
    for (let c = 0; c < cols; ++c) codes[r * cols + c] = Math.round((row[c] ?? 0) / scale)
  }
  return { format: 'i8', rows, cols, data: codes, rowScale }
}
