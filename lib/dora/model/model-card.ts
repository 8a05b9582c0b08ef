// model-card.ts: README.md of an adapter folder, as model hubs show it.
import { printable } from '../../core/printable.js'
import { packageVersion } from '../../core/version.js'
import type { AdapterState } from './adapter-module.js'
import type { TrainingRecord } from './trainable-adapter.js'

/** The parts of an adapter that a card describes. */
export interface DescribedAdapter extends Pick<AdapterState, 'config' | 'modules' | 'name'> {
  readonly parameterCount: number
  readonly training: TrainingRecord | undefined
}

/** A text in a table or list: no markup of its own, on one line. */
const plain = (text: unknown): string =>
  printable(typeof text === 'string' ? text : JSON.stringify(text)).replace(/[\\`*_[\]<>|#]/g, '\\$&')

const table = (head: readonly string[], rows: readonly (readonly unknown[])[]): string =>
  [head, head.map(() => '---'), ...rows.map(row => row.map(plain))]
    .map(row => `| ${row.join(' | ')} |`)
    .join('\n')

/** A card in Markdown, with the metadata that hubs read in front of it. */
export function modelCard(adapter: DescribedAdapter, folder: string): string {
  const { config, modules, name, training } = adapter
  const kind = config.useDora ? 'DoRA' : config.useRslora ? 'rsLoRA' : 'LoRA'
  const base = config.raw.base_model_name_or_path
  const about = typeof base === 'string' && base !== '' ? base : undefined
  const metadata = [
    ...(about ? [`base_model: ${JSON.stringify(about)}`] : []),
    'library_name: peft',
    'tags:',
    ...[kind.toLowerCase(), 'dgx-spark'].map(tag => `  - ${tag}`),
  ]
  const count = adapter.parameterCount.toLocaleString('en')
  const layers = modules.map(({ name, kind, rank, alpha }) => [name, kind, rank, alpha])
  const sections = [
    `---\n${metadata.join('\n')}\n---`,
    `# ${plain(name)}`,
    `A ${kind} adapter${about ? ` of ${plain(about)}` : ''} with ${count} parameters, made by dgx-spark ${packageVersion()}.`,
    `## Layers\n\n${table(['module', 'kind', 'rank', 'alpha'], layers)}`,
    ...(training ? [`## Training\n\n${table(['setting', 'value'], Object.entries(training))}`] : []),
    `## Use\n\n${usage(folder)}`,
  ]
  return `${sections.join('\n\n')}\n`
}

function usage(folder: string): string {
  const program = [
    "import { Adapter, Model } from 'dgx-spark'",
    '',
    "const base = await Model.load('base.onnx')",
    `const adapter = await Adapter.load(base, ${JSON.stringify(folder)})`,
    'const model = await Model.fromGraph(adapter.graph)',
  ]
  return [
    '```js',
    ...program,
    '```',
    '',
    'PEFT loads the folder, too: `PeftModel.from_pretrained(base, folder)`.',
  ].join('\n')
}
