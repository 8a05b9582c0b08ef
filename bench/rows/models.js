// models.js: whole models of the shared data (DGX_SPARK_TEST_DATA), beside ONNX Runtime.
import { statSync } from 'node:fs'
import path from 'node:path'
import { Model, Tensor } from 'dgx-spark'
import { uniform } from '../random.js'
import { expectClose } from './conv.js'

/** @import { Kernels } from 'dgx-spark' */
/** @import { Case } from '../harness.js' */
/** @import { Peer } from '../peer.js' */

const files = [
  'mnist/mnist-8.onnx',
  'mnist/burn_mnist.onnx',
  'ultraface/version-RFB-320.onnx',
  'vision/super_resolution.onnx',
  'openpilot/dmonitoring_model.3294407.onnx',
  'openpilot/dmonitoring_model.3902922.onnx',
]

/** Models with inputs of f32 at batch 1. @param {Kernels} kernels @param {Peer | null} peer @returns {AsyncGenerator<Case>} */
export async function* models(kernels, peer) {
  const folder = process.env.DGX_SPARK_TEST_DATA
  if (!folder || kernels.backend === 'js') return
  for (const name of files) {
    const file = path.join(folder, 'models', name)
    const model = await Model.load(file, { backend: kernels.backend, precision: 'fp32' })
    const inputs = model.inputs.map(({ name, dtype, shape }, i) => {
      const sizes = (shape ?? []).map(size => (typeof size === 'number' ? size : 1))
      const count = sizes.reduce((product, size) => product * size, 1)
      const data = dtype === 'u8' ? new Uint8Array(count).fill(99) : uniform(count, i + 1)
      return { name, shape: sizes, data }
    })
    const feeds = Object.fromEntries(
      inputs.map(({ name, data, shape }) => [
        name,
        Tensor.from(/** @type {Float32Array} */ (data), { shape }),
      ]),
    )
    const beside = await peer?.model(file, inputs)
    yield {
      name: path.basename(file, '.onnx'),
      shape: inputs.map(({ shape }) => shape.join('x')).join(' '),
      dtype: 'f32',
      bytes: statSync(file).size,
      run: () => model.run(feeds),
      check: async () => {
        const [ours, expected] = [await model.run(feeds), await beside?.()]
        for (const [name, data] of Object.entries(expected ?? {})) {
          expectClose(/** @type {Float32Array} */ (ours[name]?.data), data)
        }
      },
      ...(beside && peer && { peer: { name: peer.name, run: beside } }),
    }
    model.dispose()
  }
}
