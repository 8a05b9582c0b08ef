import type { Command } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
import { Adapter } from '../dora/model/adapter.js'
import { mergeAdapters } from '../dora/model/merge.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { lockFile } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { writeOnnx } from '../io/onnx/save.js'
import { choice, withExamples } from './command.js'
import { describeChange, expectOther, weightBytes, writtenBytes } from './files.js'
import { pathFrom } from './numbers.js'
import { formatBytes, print, printJson, printPairs } from './output.js'

interface MergeFlags {
  output: string
  overwrite?: boolean
  json?: boolean
  checkBase: boolean
  backend?: BackendName
}

/** `dgx-spark merge`: adapters folded into the weights of an ONNX model. */
export function addMerge(command: Command): void {
  command
    .argument('<model>', 'ONNX file that the adapters were made for')
    .argument('<adapters...>', "adapter folders in PEFT's format, merged in this order")
    .requiredOption('-o, --output <file>', 'ONNX file to write', pathFrom)
    .option('--overwrite', 'allow the output to replace the model itself')
    .option('--no-check-base', 'take adapters that were made for other weights, too')
    .option('--json', 'print one JSON document')
    .addOption(choice('--backend <name>', 'engine to run on', backendNames))
    .action(merge)
  withExamples(
    command,
    'dgx-spark merge base.onnx adapter -o merged.onnx',
    'dgx-spark merge base.onnx adapter other-adapter -o merged.onnx --no-check-base',
  )
}

async function merge(model: string, folders: readonly string[], flags: MergeFlags): Promise<void> {
  const { output, checkBase, overwrite, backend } = flags
  await expectOther(model, output, overwrite)
  const graph = canonicalise(await readOnnx(model))
  const adapters: Adapter[] = []
  for (const folder of folders) adapters.push(await Adapter.load(graph, folder, { checkBase }))
  const { graph: merged, losses } = await mergeAdapters(graph, adapters, { ...(backend && { backend }) })
  using _lock = await lockFile(output)
  await writeOnnx(merged, output)
  const [before, bytes] = [weightBytes(graph), weightBytes(merged)]
  const fileBytes = await writtenBytes([output, `${output}.data`])
  if (flags.json) {
    const changes = { losses: Object.fromEntries(losses), before, bytes, fileBytes }
    printJson({ output, adapters: adapters.map(String), ...changes })
    return
  }
  for (const adapter of adapters) print(String(adapter))
  for (const [name, loss] of losses) {
    if (loss > 0) print(`${name}: rounding to the format of the base lost ${(100 * loss).toFixed(3)} %`)
  }
  printPairs([
    ['weights', describeChange(before, bytes)],
    ['file', formatBytes(fileBytes)],
    ['read by', 'dgx-spark, and every runtime that reads the base'],
  ])
  print(`wrote ${output}`)
}
