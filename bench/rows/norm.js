// norm.js: normalizations and softmax of a transformer's activations, beside ONNX Runtime's; on a GPU also those that round their
// rows for products.
import assert from 'node:assert'
import { decode } from 'dgx-spark'
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { KernelArgs, Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* norm(kernels, peer) {
  if (!kernels.supports('norm')) return
  const [rows, cols] = [1024, 1024]
  const operands = new Operands(kernels)
  const x = await operands.put(uniform(rows * cols, 2))
  const dy = await operands.put(uniform(rows * cols, 3))
  const [scale, bias] = [await operands.put(uniform(cols, 4)), await operands.put(uniform(cols, 5))]
  const y = await operands.put(new Float32Array(x.length))
  const dx = await operands.put(new Float32Array(x.length))
  const [mean, invStd] = [
    await operands.put(new Float32Array(rows)),
    await operands.put(new Float32Array(rows)),
  ]
  const shape = { rows, cols, groups: 1, inner: 1 }
  const about = { shape: `${rows}x${cols}`, dtype: 'f32', bytes: 2 * x.byteLength }
  const constants = { scale: { shape: [cols], data: scale }, bias: { shape: [cols], data: bias } }
  const tensors = { inputs: { x: [rows, cols] }, outputs: { y: [rows, cols] } }
  const peers = {
    softmax: await peer?.operator({ type: 'Softmax', ...tensors }),
    layer: await peer?.operator({
      type: 'LayerNormalization',
      ...tensors,
      constants,
      floats: { epsilon: 1e-5 },
    }),
  }
  const plain = await openKernels({ backend: 'js' })
  const expected = new Float32Array(x.length)
  const beside = (
    /** @type {typeof peers.softmax} */ run,
    /** @type {() => Promise<unknown>} */ reference,
  ) => ({
    check: async () => {
      if (!run) await reference()
      expectClose(y, run ? await run(x) : expected)
    },
    ...(run && peer && { peer: { name: peer.name, run: () => run(x) } }),
  })
  yield {
    ...about,
    name: 'softmax',
    run: () => kernels.run('softmax', { rows, cols, x, y }),
    ...beside(peers.softmax, () => plain.run('softmax', { rows, cols, x, y: expected })),
  }
  const layer = { ...shape, centered: true, eps: 1e-5, x, scale, bias, y, mean, invStd }
  yield {
    ...about,
    name: 'layer norm',
    run: () => kernels.run('norm', layer),
    ...beside(peers.layer, () => plain.run('norm', { ...layer, y: expected })),
  }
  await kernels.run('norm', layer)
  const backward = { ...shape, centered: true, x, scale, mean, invStd, dy }
  yield {
    ...about,
    name: 'layer norm backward',
    bytes: 3 * x.byteLength,
    run: () => kernels.run('normBackward', { ...backward, dx }),
    check: async () => {
      await plain.run('normBackward', { ...backward, dx: expected })
      expectClose(dx, expected)
    },
  }
  const rms = { ...shape, centered: false, eps: 1e-5, x, scale }
  yield {
    ...about,
    name: 'RMS norm',
    run: () => kernels.run('norm', { ...rms, y, invStd }),
    check: async () => {
      await plain.run('norm', { ...rms, y: expected })
      expectClose(y, expected)
    },
  }
  if (kernels.backend === 'cuda') yield* roundingNorms(kernels, operands, { rms, y, expected, plain })
  operands.dispose()
}

/**
 * An RMS norm that stores its rows in bf16 beside f32, as in front of products and a sum, and one that rounds them to NVFP4.
 * @param {Kernels} kernels @param {Operands} operands
 * @param {{ rms: Omit<KernelArgs['norm'], 'y'>, y: Float32Array, expected: Float32Array, plain: Kernels }} norm
 * @returns {AsyncGenerator<Case>}
 */
async function* roundingNorms(kernels, operands, { rms, y, expected, plain }) {
  const { rows, cols } = rms
  const count = rows * cols
  const halves = await operands.put(new Uint16Array(count))
  const about = { shape: `${rows}x${cols}`, bytes: 4 * count }
  yield {
    ...about,
    name: 'RMS norm beside f32',
    dtype: 'bf16',
    bytes: (4 + 4 + 2) * count,
    run: () => kernels.run('norm', { ...rms, y, yHalf: halves, halfDtype: 'bf16' }),
    check: async () => {
      await plain.run('norm', { ...rms, y: expected })
      expectClose(y, expected)
      expectClose(decode(halves, 'bf16'), expected, 2 ** -8)
    },
  }
  const weight = await operands.put(new Uint8Array(cols / 2).fill(0x22))
  const scales = await operands.put(new Uint8Array(cols / 16).fill(0x38))
  const sums = await operands.put(new Float32Array(rows))
  const ones = { format: /** @type {const} */ ('nvfp4'), rows: 1, cols, data: weight, blockScale: scales }
  yield {
    ...about,
    name: 'RMS norm rounded',
    dtype: 'nvfp4',
    bytes: (4 + 9 / 16) * count,
    run: () => kernels.run('norm', { ...rms, yRounded: halves }),
    check: async () => {
      // Only products read such rows: one by ones sums each.
      const rounded = { x: halves, xDtype: /** @type {const} */ ('nvfp4'), tokens: rows }
      await kernels.run('linear', {
        ...{ ...rounded, weight: { ...ones, tensorScale: 1 }, compute: 'nvfp4', y: sums },
      })
      await plain.run('norm', { ...rms, y: expected })
      for (let row = 0; row < rows; ++row) {
        const exact = expected.subarray(row * cols, (row + 1) * cols)
        const sum = exact.reduce((a, b) => a + b, 0)
        const size = Math.sqrt(exact.reduce((a, b) => a + b * b, 0))
        assert.ok(
          Math.abs((sums[row] ?? Number.NaN) - sum) < size,
          `row ${row} sums to ${sums[row]}, not ${sum}`,
        )
      }
    },
  }
}
