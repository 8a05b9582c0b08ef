// pools.js: largest elements and means of windows, and means of whole images, on shapes of convolutional nets, beside ONNX
// Runtime's operators.
import { openKernels } from 'dgx-spark/kernels'
import { numel } from '../feeds.js'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { KernelArgs, Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Operator } from '../onnx-model.js' */
/** @import { Peer } from '../peer.js' */

/** Planes, the size of the image, of the window, and its stride; windows of 3 and 5 have a border of 1 and 2. */
const shapes = /** @type {const} */ ([
  [64, 112, 3, 2],
  [192, 28, 3, 1],
  [192, 28, 5, 1],
  [1024, 14, 3, 1],
  [128, 56, 2, 2],
])

/** Planes, and the size of the image of a global pool. */
const globals = [
  [48, 56],
  [672, 14],
  [960, 7],
]

/** Batch, rows and columns: means and maxima of tokens, and of images whose channels come last. */
const tokens = [
  [1, 196, 384],
  [8, 49, 960],
]

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* pools(kernels, peer) {
  if (!kernels.supports('pool')) return
  const operands = new Operands(kernels)
  const plain = await openKernels({ backend: 'js' })
  for (const [planes, size, kernel, stride] of shapes) {
    const pad = (kernel - 1) >> 1
    const out = Math.floor((size + 2 * pad - kernel) / stride) + 1
    const x = await operands.put(uniform(planes * size ** 2, 1))
    const y = await operands.put(new Float32Array(planes * out ** 2))
    const both = (/** @type {number} */ value) => [value, value]
    const windows = {
      ...{ planes, image: both(size), kernel: both(kernel), out: both(out), strides: both(stride) },
      ...{ dilations: [1, 1], padsBegin: both(pad), padsEnd: both(pad) },
    }
    for (const fn of /** @type {const} */ (['max', 'average'])) {
      const args = { ...windows, fn, dtype: /** @type {const} */ ('f32'), countPad: false }
      const run = await peer?.operator({
        type: fn === 'max' ? 'MaxPool' : 'AveragePool',
        inputs: { x: [1, planes, size, size] },
        outputs: { y: [1, planes, out, out] },
        attributes: { kernel_shape: both(kernel), strides: both(stride), pads: [pad, pad, pad, pad] },
      })
      yield {
        name: `${fn} pool`,
        shape: `${planes}x${size}x${size}, ${kernel}x${kernel} s${stride}`,
        dtype: 'f32',
        elements: y.length,
        bytes: x.byteLength + y.byteLength,
        run: () => kernels.run('pool', { ...args, x, y }),
        check: async () => {
          const expected = new Float32Array(y.length)
          await plain.run('pool', { ...args, x, y: expected })
          expectClose(y, expected)
          if (run) expectClose(y, await run(x))
        },
        ...(run && peer && { peer: { name: peer.name, run: () => run(x) } }),
      }
    }
  }
  for (const [planes = 0, size = 0] of globals) {
    yield* reduction(kernels, peer, {
      fn: 'mean',
      name: 'global average pool',
      sizes: [1, planes, size, size],
      results: [1, planes, 1, 1],
      args: { shape: [planes], strides: [size ** 2], reduced: [size ** 2], reducedStrides: [1] },
      operator: { type: 'GlobalAveragePool', attributes: {} },
    })
  }
  for (const [batch = 0, rows = 0, columns = 0] of tokens) {
    for (const [fn, type] of /** @type {const} */ ([
      ['mean', 'ReduceMean'],
      ['max', 'ReduceMax'],
    ])) {
      yield* reduction(kernels, peer, {
        ...{ fn, name: `${fn} of rows` },
        sizes: [batch, rows, columns],
        results: [batch, 1, columns],
        args: {
          ...{ shape: [batch, columns], strides: [rows * columns, 1] },
          ...{ reduced: [rows], reducedStrides: [columns] },
        },
        operator: { type, attributes: { axes: [1] }, opset: 17 },
      })
    }
  }
}

/**
 * @typedef {object} Reduction
 * @property {'mean' | 'max'} fn
 * @property {string} name
 * @property {number[]} sizes of x
 * @property {number[]} results sizes of y
 * @property {Pick<KernelArgs['reduce'], 'shape' | 'strides' | 'reduced' | 'reducedStrides'>} args
 * @property {Pick<Operator, 'type' | 'attributes' | 'opset'>} operator
 */

/** @param {Kernels} kernels @param {Peer | null} peer @param {Reduction} of @returns {AsyncGenerator<Case>} */
async function* reduction(kernels, peer, { fn, name, sizes, results, args: strides, operator }) {
  const operands = new Operands(kernels)
  const plain = await openKernels({ backend: 'js' })
  const x = await operands.put(uniform(numel(sizes), 1))
  const y = await operands.put(new Float32Array(numel(results)))
  const args = /** @type {const} */ ({ ...strides, fn, dtype: 'f32' })
  const run = await peer?.operator({ ...operator, inputs: { x: sizes }, outputs: { y: results } })
  yield {
    name,
    shape: sizes.slice(sizes[0] === 1 ? 1 : 0).join('x'),
    dtype: 'f32',
    elements: x.length,
    bytes: x.byteLength,
    run: () => kernels.run('reduce', { ...args, x, y }),
    check: async () => {
      const expected = new Float32Array(y.length)
      await plain.run('reduce', { ...args, x, y: expected })
      expectClose(y, expected)
      if (run) expectClose(y, await run(x))
    },
    ...(run && peer && { peer: { name: peer.name, run: () => run(x) } }),
  }
}
