// side-by-side.js: two models that run at a time, beside the same two one after the other.
import assert from 'node:assert'
import { Model, Tensor } from 'dgx-spark'
import { transformer } from '../../test/fixtures/models/transformer.js'
import { uniform } from '../random.js'
import { flopsOf } from './models.js'

/** @import { Kernels } from 'dgx-spark/kernels' */
/** @import { Case } from '../harness.js' */

const encoder = { layers: 4, width: 512, heads: 8 }

/** @param {Kernels} kernels @returns {AsyncGenerator<Case>} */
export async function* sideBySide(kernels) {
  if (kernels.backend === 'js') return
  const backend = kernels.backend
  for (const tokens of [16, 256]) {
    const hidden = Tensor.from(uniform(tokens * encoder.width, 3), { shape: [1, tokens, encoder.width] })
    const models = await Promise.all(
      [1, 2].map(seed =>
        Model.fromGraph(transformer({ ...encoder, tokens }, seed), { backend, precision: 'fp32' }),
      ),
    )
    const bound = await Promise.all(models.map(model => model.bind({ hidden })))
    const inTurns = async () => {
      for (const each of bound) await each.run()
    }
    const outputs = () => bound.map(each => Object.values(each.outputs).map(output => output.toFloat32()))
    yield {
      name: 'side by side',
      shape: `2 encoders ${encoder.layers}x${encoder.width} T${tokens}`,
      dtype: 'f32',
      flops: models.reduce((sum, model) => sum + flopsOf(model, { hidden }), 0),
      run: () => Promise.all(bound.map(each => each.run())),
      check: async () => {
        for (let run = 0; run < 3; ++run) await inTurns() // on a GPU the third run is the first one that is replayed
        const expected = outputs()
        await Promise.all(bound.map(each => each.run()))
        assert.deepEqual(outputs(), expected)
      },
      peer: { name: 'in turns', run: inTurns },
    }
    for (const model of models) model.dispose()
  }
}
