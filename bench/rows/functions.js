// functions.js: elementwise operations on activations that fit into a cache, beside ONNX Runtime's operators.
import { openKernels } from 'dgx-spark/kernels'
import { Operands } from '../operands.js'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels, KernelArgs } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

/** Operators of ONNX by the function that computes them. */
const operators = {
  exp: 'Exp',
  log: 'Log',
  tanh: 'Tanh',
  erf: 'Erf',
  sigmoid: 'Sigmoid',
  softplus: 'Softplus',
  elu: 'Elu',
}

const count = 2 ** 16

/** @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* functions(kernels, peer) {
  if (!kernels.supports('unary')) return
  const operands = new Operands(kernels)
  // Positive, for logarithms and powers.
  const x = await operands.put(uniform(count, 1).map(value => 1.5 + value))
  const y = await operands.put(new Float32Array(count))
  const exponent = await operands.put(Float32Array.of(0.75))
  const about = { shape: `${count}`, dtype: 'f32', elements: count, bytes: 2 * x.byteLength }
  const shapes = { inputs: { x: [count] }, outputs: { y: [count] } }
  const beside = (/** @type {Awaited<ReturnType<Peer['operator']>> | undefined} */ run) => ({
    check: async () => {
      const expected = await run?.(x)
      if (expected) expectClose(y, expected)
    },
    ...(run && peer && { peer: { name: peer.name, run: () => run(x) } }),
  })
  for (const [name, type] of Object.entries(operators)) {
    const fn = /** @type {KernelArgs['unary']['fn']} */ (name)
    yield {
      ...about,
      name,
      run: () => kernels.run('unary', { fn, dtype: 'f32', count, alpha: 1, x, y }),
      ...beside(await peer?.operator({ type, ...shapes })),
    }
  }
  for (const fn of /** @type {const} */ (['gelu', 'gelu_tanh', 'silu', 'mish'])) {
    const args = { fn, dtype: /** @type {const} */ ('f32'), count }
    const check = async () => {
      const [plain, expected] = [await openKernels({ backend: 'js' }), new Float32Array(count)]
      await plain.run('unary', { ...args, x, y: expected })
      expectClose(y, expected)
    }
    yield { ...about, name: fn, run: () => kernels.run('unary', { ...args, x, y }), check }
  }
  const constants = { e: { shape: [1], data: exponent } }
  const sizes = { shape: [count], aStrides: [1], bStrides: [0] }
  yield {
    ...about,
    name: 'pow 0.75',
    run: () => kernels.run('binary', { fn: 'pow', dtype: 'f32', ...sizes, a: x, b: exponent, y }),
    ...beside(await peer?.operator({ type: 'Pow', ...shapes, constants })),
  }
  operands.dispose()
}
