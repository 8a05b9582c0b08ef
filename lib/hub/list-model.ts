// list-model.ts: the files that a name of a model offers.
import { SparkError } from '../core/errors.js'
import { parseModelName } from './model-name.js'
import type { PlannedFile, PullOptions } from './pull-options.js'

/**
 * All files of a repository of the Hugging Face hub, or the content of a model of Ollama.
 * @throws SparkError as {@link pullModel}; ERR_ARGUMENT for an address, behind which is one file
 */
export async function listModel(uri: string, options: PullOptions): Promise<PlannedFile[]> {
  const name = parseModelName(uri)
  if (name.kind === 'hub') return (await import('./pull-hub.js')).listHubFiles(name, options)
  if (name.kind === 'ollama') return (await import('./pull-ollama.js')).listOllama(name, options)
  throw new SparkError('ERR_ARGUMENT', `${uri} is a file: only hf: and ollama: names list several`)
}
