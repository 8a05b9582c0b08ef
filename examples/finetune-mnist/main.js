// node examples/finetune-mnist/main.js [folder] [backend]: the whole loop, with a progress bar.
import { spawnSync } from 'node:child_process'
import { mkdir } from 'node:fs/promises'
import path from 'node:path'
import { SingleBar } from 'cli-progress'
import { makeBase } from './base.js'
import { loadDigits, negatives } from './data.js'
import { files, finetune } from './finetune.js'

/** @import { BackendName, TrainingEvent } from 'dgx-spark' */

/** A bar for each training. @param {string} title */
function progressBar(title) {
  const bar = new SingleBar({ format: `${title} {bar} {value}/{total}  loss {loss}`, barsize: 32 })
  return {
    step: (/** @type {TrainingEvent} */ { step, totalSteps = 0, loss }) => {
      if (step === 1) bar.start(totalSteps, 0, { loss: '-' })
      bar.update(step, { loss: loss.toFixed(3) })
    },
    stop: () => bar.stop(),
  }
}

const [folder = 'finetune-mnist', name] = process.argv.slice(2)
const options = { backend: /** @type {BackendName | undefined} */ (name) }
await mkdir(folder, { recursive: true })
const { train } = await loadDigits()

const baseBar = progressBar('base   ')
await makeBase(path.join(folder, files.base), train, options, baseBar.step)
baseBar.stop()

const adapterBar = progressBar('adapter')
const adapter = await finetune(folder, negatives(train), options, adapterBar.step)
adapterBar.stop()
console.log(String(adapter))

const script = path.join(import.meta.dirname, 'use.js')
const { status } = spawnSync(process.execPath, [script, folder, ...(name ? [name] : [])], {
  stdio: 'inherit',
})
process.exitCode = status ?? 1
