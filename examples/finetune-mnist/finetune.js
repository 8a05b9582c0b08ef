// finetune.js: adapts an ONNX model of handwritten digits to their photographic negatives and saves the adapter.
import path from 'node:path'
import { createAdapter, Model, Trainer } from 'dgx-spark'
import { dataset } from './data.js'

/** @import { BackendName, TrainingEvent } from 'dgx-spark' */
/** @import { Digits } from './data.js' */

/** Names of what the example writes into its folder. */
export const files = { base: 'base.onnx', adapter: 'negatives', merged: 'merged.onnx' }

/**
 * Trains a DoRA adapter of rank 4 on `digits`, and saves it beside the model of `folder`.
 * @param {string} folder
 * @param {Digits} digits
 * @param {{ backend?: BackendName | undefined }} options
 * @param {(event: TrainingEvent) => void} onStep
 */
export async function finetune(folder, digits, { backend }, onStep) {
  const engine = backend && { backend }
  const model = await Model.load(path.join(folder, files.base), { ...engine })
  const targetModules = ['conv1', 'conv2', 'fc1', 'fc2']
  const adapter = await createAdapter(model, { targetModules, rank: 4, alpha: 8, seed: 2, ...engine })
  const trainer = new Trainer(model, adapter, {
    loss: 'cross-entropy',
    optimizer: { type: 'adamw', learningRate: 5e-3 },
    schedule: { type: 'cosine' },
    epochs: 5,
    batchSize: 64,
    seed: 3,
    ...engine,
  })
  await trainer.fit(dataset(digits), { onStep })
  await adapter.save(path.join(folder, files.adapter))
  model.dispose()
  return adapter
}
