import { SingleBar } from 'cli-progress'
import { type Command, Option } from 'commander'
import { type BackendName, backendNames } from '../core/config.js'
import { formatBytes, print, printJson, printPairs, printTable, styled } from './output.js'

/** What examples/digits/demo.js gives; that file is JavaScript for people to read, outside of the compiled library. */
interface DemoResult {
  backend: string
  device: string
  digits: { train: number; test: number }
  accuracy: Record<'before' | 'after', { digits: number; negatives: number }>
  adapter: { rank: number; parameters: number; bytes: number; baseBytes: number; share: number }
  mergeError: number
  modes: { precision: string; accuracy: number; bytes: number; p50Ms: number; p99Ms: number }[]
  seconds: number
}

interface Progress {
  begin(name: string, steps: number): void
  step(loss: number): void
  end(): void
}

type RunDemo = (options: { backend?: BackendName }, progress: Progress) => Promise<DemoResult>

/** `dgx-spark demo`: train, adapt, merge and quantize a real model (examples/digits). */
export function addDemo(program: Command): void {
  program
    .command('demo')
    .description('adapt a digit classifier to photographic negatives, merge it, run it in every precision')
    .option('--json', 'print one JSON document')
    .addOption(new Option('--backend <name>', 'engine to run on').choices(backendNames))
    .action(async (options: { json?: boolean; backend?: BackendName }) => {
      const example = new URL('../../examples/digits/demo.js', import.meta.url)
      const { runDemo } = (await import(example.href)) as { runDemo: RunDemo }
      const backend = options.backend && { backend: options.backend }
      const result = await runDemo({ ...backend }, progressOnStderr())
      if (options.json) printJson(result)
      else report(result)
    })
}

/** A bar on a terminal; a line per stage elsewhere. */
function progressOnStderr(): Progress {
  const titles: Record<string, string> = { base: 'training the base', adapter: 'training the adapter' }
  if (!process.stderr.isTTY) {
    let last = Number.NaN
    return {
      begin: (name, steps) => process.stderr.write(`${titles[name]}: ${steps} steps, `),
      step: loss => {
        last = loss
      },
      end: () => process.stderr.write(`loss ${last.toFixed(3)}\n`),
    }
  }
  const format = '{title} {bar} {percentage} %  loss {loss}  {eta} s left'
  const bar = new SingleBar({
    format,
    barCompleteChar: '━',
    barIncompleteChar: ' ',
    hideCursor: true,
    barsize: 32,
  })
  let smooth = Number.NaN
  return {
    begin(name, steps) {
      smooth = Number.NaN
      bar.start(steps, 0, { title: titles[name]!.padEnd(20), loss: '-' })
    },
    step(loss) {
      smooth = Number.isNaN(smooth) ? loss : 0.95 * smooth + 0.05 * loss
      bar.increment(1, { loss: smooth.toFixed(3) })
    },
    end: () => bar.stop(),
  }
}

const percent = (share: number): string => `${(100 * share).toFixed(1)} %`

function report({ accuracy, adapter, modes, ...result }: DemoResult): void {
  const { before, after } = accuracy
  print(`\n${styled('bold', 'A classifier of handwritten digits, adapted to their photographic negatives')}`)
  printTable(
    ['accuracy on the test digits', 'base model', 'with the adapter'],
    [
      ['photographic negatives', percent(before.negatives), styled('green', percent(after.negatives))],
      ['digits as written', percent(before.digits), percent(after.digits)],
    ],
    [1, 2],
  )
  const kept = formatBytes(adapter.baseBytes)
  printPairs([
    ['adapter', `DoRA rank ${adapter.rank}, ${adapter.parameters.toLocaleString('en')} parameters`],
    ['adapter file', `${formatBytes(adapter.bytes)}, ${percent(adapter.share)} of the base model's ${kept}`],
    ['merged = unmerged', `to ${result.mergeError.toExponential(1)} of the largest logit`],
  ])
  print(`\n${styled('bold', 'The merged model in each precision')}`)
  const full = modes[0]!
  printTable(
    ['weights', 'accuracy', 'size', 'of fp32', 'p50', 'p99'],
    modes.map(({ precision, accuracy, bytes, p50Ms, p99Ms }) => [
      precision,
      percent(accuracy),
      formatBytes(bytes),
      percent(bytes / full.bytes),
      `${(1000 * p50Ms).toFixed(0)} µs`,
      `${(1000 * p99Ms).toFixed(0)} µs`,
    ]),
    [1, 2, 3, 4, 5],
  )
  print('p50, p99: latency of one digit, half and 99 % of 300 runs are faster')
  print(
    `\n${result.device} (${result.backend}); ${result.digits.train} digits trained on, ${result.digits.test} tested, ${result.seconds.toFixed(1)} s in all`,
  )
}
