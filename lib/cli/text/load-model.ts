// load-model.ts: loads the language model of a command, which may have to be downloaded.
import { TextModel } from '../../text/text-model.js'
import type { TextModelOptions } from '../../text/text-options.js'
import { fileProgress } from '../progress.js'
import { type ModelFlags, modelOptions } from './generation-flags.js'

/** What commands call their model. */
export const modelArgument = [
  '<model>',
  'a folder of Hugging Face or ONNX, a GGUF file, hf:owner/name[:quantization], or ollama:name',
] as const

/**
 * The model of a command; shows the progress of a download.
 * @throws SparkError as `TextModel.load`
 */
export async function loadModel(
  source: string,
  flags: ModelFlags,
  options: TextModelOptions = {},
): Promise<TextModel> {
  const progress = fileProgress(source)
  try {
    const onProgress: TextModelOptions['onProgress'] = event => progress.update(event)
    return await TextModel.load(source, { ...modelOptions(flags), onProgress, ...options })
  } finally {
    progress.end()
  }
}
