// pull.ts: `dgx-spark pull`: language models of the Hugging Face hub, of Ollama, and behind addresses.
import { type Command, InvalidArgumentError } from 'commander'
import { quantizationOf } from '../../hub/gguf-names.js'
import { listModel } from '../../hub/list-model.js'
import { isModelName, parseModelName } from '../../hub/model-name.js'
import { pullModel } from '../../hub/pull.js'
import type { PlannedFile, PulledModel, PullOptions } from '../../hub/pull-options.js'
import { interruptible, UsageError, withExamples } from '../command.js'
import { formatBytes, print, printError, printJson, printPairs } from '../output.js'
import { fileProgress } from '../progress.js'
import { printTable } from '../table.js'

interface Options {
  revision?: string
  list?: boolean
  dryRun?: boolean
  offline?: boolean
  json?: boolean
}

/** `dgx-spark pull`. */
export function addPull(command: Command): void {
  command
    .argument(
      '<model>',
      'hf:owner/name[@revision][:file, folder or quantization], ollama:name[:tag], or an https: URL',
      modelFrom,
    )
    .option('--revision <name>', 'branch, tag or commit of a hf: repository (default: main)')
    .option('--list', 'list what the repository has, instead')
    .option('--dry-run', 'show which files are needed, and download nothing')
    .option('--offline', 'only look at what is on this disk')
    .option('--json', 'print one JSON document')
    .action(pull)
  withExamples(
    command,
    'dgx-spark pull hf:Qwen/Qwen3-0.6B',
    'dgx-spark pull hf:unsloth/Qwen3-0.6B-GGUF:Q8_0',
    'dgx-spark pull hf:unsloth/Qwen3-0.6B-GGUF --list',
    'dgx-spark pull ollama:qwen3:0.6b',
  )
}

function modelFrom(text: string): string {
  if (isModelName(text)) return text
  const hint = /^[\w.-]+\/[\w.-]+(:\S*)?$/.test(text) ? `; did you mean hf:${text}?` : ''
  throw new InvalidArgumentError(`expected hf:owner/name, ollama:name, or a URL${hint}`)
}

async function pull(uri: string, options: Options): Promise<void> {
  const { revision, list, dryRun, offline } = options
  if (list && dryRun) throw new UsageError('give --list or --dry-run')
  const { kind } = parseModelName(uri)
  if (revision !== undefined && kind !== 'hub')
    throw new UsageError(`--revision is for hf: names, not for ${uri}`)
  const isInterrupted = await interruptible(async signal => {
    const common: PullOptions = {
      update: true,
      signal,
      ...(offline && { offline }),
      ...(revision !== undefined && { revision }),
    }
    if (list) showFiles(await listModel(uri, common), options)
    else if (dryRun) await plan(uri, common, options)
    else await download(uri, common, options)
  })
  if (!isInterrupted) return
  printError('interrupted: what has arrived stays; the same command goes on where it was')
  process.exitCode = 130
}

/** Shows files, and how many bytes are to be downloaded. */
function showFiles(files: readonly PlannedFile[], { json, list }: Options): void {
  if (json) {
    printJson(files)
    return
  }
  const hasQuantizations = files.some(({ name }) => /\.gguf$/i.test(name))
  printTable(
    ['file', ...(hasQuantizations ? ['quantization'] : []), 'size', 'on this disk'],
    files.map(({ name, bytes, isThere }) => [
      name,
      ...(hasQuantizations ? [/\.gguf$/i.test(name) ? quantizationOf(name) : ''] : []),
      formatBytes(bytes),
      isThere ? 'yes' : 'no',
    ]),
    [hasQuantizations ? 2 : 1],
  )
  if (list) return
  const missing = files.filter(({ isThere }) => !isThere)
  const bytes = missing.reduce((total, file) => total + (file.bytes ?? 0), 0)
  const isKnown = missing.every(file => file.bytes !== null)
  print(`to download: ${missing.length} files, ${isKnown ? formatBytes(bytes) : 'of unknown size'}`)
}

async function plan(uri: string, common: PullOptions, options: Options): Promise<void> {
  let files: readonly PlannedFile[] = []
  await pullModel(uri, {
    ...common,
    dryRun: true,
    onPlan: planned => {
      files = planned.files
    },
  })
  showFiles(files, options)
}

async function download(uri: string, common: PullOptions, { json }: Options): Promise<void> {
  const progress = fileProgress(uri)
  let model: PulledModel
  try {
    model = await pullModel(uri, { ...common, onProgress: at => progress.update(at) })
  } finally {
    progress.end()
  }
  const { path, format, files, commit, downloadedBytes, isOffline } = model
  if (json) {
    printJson({ uri, ...model })
    return
  }
  const bytes = files.reduce((total, file) => total + file.bytes, 0)
  const source = isOffline
    ? 'nothing: on this disk, no server was asked or answered'
    : formatBytes(downloadedBytes)
  printPairs([
    ['model', uri],
    ['path', path],
    ['format', format],
    ...(commit === undefined ? [] : [['commit', commit] as const]),
    ['files', `${files.length}, ${formatBytes(bytes)}`],
    ['downloaded', source],
  ])
}
