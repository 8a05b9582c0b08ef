import { type Command, Option } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
import { Adapter } from '../dora/model/adapter.js'
import { mergeAdapters } from '../dora/model/merge.js'
import { canonicalise } from '../graph/rewrites/canonicalise.js'
import { lockFile } from '../io/lock.js'
import { readOnnx } from '../io/onnx/read.js'
import { writeOnnx } from '../io/onnx/write.js'
import { pathFrom } from './numbers.js'
import { print, printJson } from './output.js'

interface MergeFlags {
  output: string
  json?: boolean
  checkBase: boolean
  backend?: BackendName
}

/** `dgx-spark merge`: adapters folded into the weights of an ONNX model. */
export function addMerge(program: Command): void {
  program
    .command('merge')
    .description('fold adapters into the weights of an ONNX model: a plain model that runs anywhere')
    .argument('<model>', 'ONNX file that the adapters were made for')
    .argument('<adapters...>', "adapter folders in PEFT's format, merged in this order")
    .requiredOption('-o, --output <file>', 'ONNX file to write', pathFrom)
    .option('--no-check-base', 'take adapters that were made for other weights, too')
    .option('--json', 'print one JSON document')
    .addOption(new Option('--backend <name>', 'engine to run on').choices(backendNames))
    .action(async (model: string, folders: string[], flags: MergeFlags) => {
      const graph = canonicalise(await readOnnx(model))
      const { checkBase } = flags
      const backend = flags.backend && { backend: flags.backend }
      const adapters: Adapter[] = []
      for (const folder of folders)
        adapters.push(await Adapter.load(graph, folder, { checkBase, ...backend }))
      const { graph: merged, losses } = await mergeAdapters(graph, adapters, { ...backend })
      using _lock = await lockFile(flags.output)
      await writeOnnx(merged, flags.output)
      if (flags.json) {
        printJson({
          output: flags.output,
          adapters: adapters.map(String),
          losses: Object.fromEntries(losses),
        })
        return
      }
      for (const adapter of adapters) print(String(adapter))
      const rounded = [...losses].filter(([, loss]) => loss > 0)
      for (const [name, loss] of rounded) {
        print(`${name}: rounding to the format of the base lost ${(100 * loss).toFixed(3)} %`)
      }
      print(`wrote ${flags.output}`)
    })
}
