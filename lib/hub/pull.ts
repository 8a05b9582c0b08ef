// pull.ts: models by their names, from hubs, registries and servers.
import { expectBoolean, expectKnownOptions, expectSignal, expectText } from '../core/checks.js'
import { SparkError } from '../core/errors.js'
import type { PulledModel, PullOptions } from './pull-options.js'

/**
 * Downloads the files of a model, unless they are on this disk, and says where they are.
 *
 * `hf:owner/name[@revision][:file]` is a model of the Hugging Face hub, in the cache that its tools share: of a repository with
 * safetensors the files of its folder, of one with GGUF files one in Q4_K_M, or what `file` names: a file, a folder, a quantization
 * (`Q8_0`) or `onnx/q4`. `ollama:name[:tag]` is a model of Ollama, read in its folder, or pulled into it; `ollama:hf.co/owner/name`
 * is one of another registry. An https: address is a file in the cache of the user.
 * @param uri - the name of the model
 * @throws SparkError ERR_ARGUMENT for a name that is none, and a file or quantization that is not there; ERR_IO when a server or
 * the disk refuses, and when `offline` and the model is not on this disk; ERR_FORMAT for files that have another hash than the
 * server says; ERR_UNSUPPORTED for a repository without a model; the reason of `signal` when it is aborted
 * @example
 * const { path } = await pullModel('hf:Qwen/Qwen3-0.6B-GGUF:Q8_0')
 */
export async function pullModel(uri: string, options: PullOptions = {}): Promise<PulledModel> {
  expectText('uri', uri)
  const known = ['revision', 'token', 'offline', 'update', 'dryRun', 'signal', 'onPlan', 'onProgress']
  expectKnownOptions('options', options, known)
  for (const name of ['revision', 'token'] as const)
    if (options[name] !== undefined) expectText(`options.${name}`, options[name])
  for (const name of ['offline', 'update', 'dryRun'] as const)
    if (options[name] !== undefined) expectBoolean(`options.${name}`, options[name])
  expectSignal('options.signal', options.signal)
  const { parseModelName } = await import('./model-name.js')
  const name = parseModelName(uri)
  if (name.kind !== 'hub' && options.revision !== undefined)
    throw new SparkError('ERR_ARGUMENT', `options.revision is for hf: names, not for ${uri}`)
  if (name.kind === 'hub') return (await import('./pull-hub.js')).pullHub(name, options)
  if (name.kind === 'ollama') return (await import('./pull-ollama.js')).pullOllama(name, options)
  return (await import('./pull-url.js')).pullUrl(name, options)
}
