// Names of models, and which files of a repository they are.
import t from 'tap'
import { quantizationOf } from '#lib/hub/gguf-names.js'
import { parseModelName } from '#lib/hub/model-name.js'
import { selectFiles } from '#lib/hub/select-files.js'
import { setVariables } from '../fixtures/hub/hub-server.js'

t.test('names', async t => {
  setVariables(t, { HF_ENDPOINT: undefined })
  const hub = (repository: string, revision?: string, file?: string) => ({
    kind: 'hub',
    repository,
    revision,
    file,
  })
  const ollama = (host: string, namespace: string, model: string, tag: string) => ({
    kind: 'ollama',
    host,
    namespace,
    model,
    tag,
  })
  for (const [text, name] of [
    ['hf:Qwen/Qwen3-0.6B', hub('Qwen/Qwen3-0.6B')],
    ['hf:gpt2', hub('gpt2')],
    ['hf:a/b@refs/pr/1:onnx/q4', hub('a/b', 'refs/pr/1', 'onnx/q4')],
    ['hf:a/b:x/y@2.gguf', hub('a/b', undefined, 'x/y@2.gguf')],
    ['https://huggingface.co/a/b', hub('a/b')],
    ['https://huggingface.co/a/b/blob/main/x/y%20z.gguf?download=true', hub('a/b', 'main', 'x/y z.gguf')],
    ['https://huggingface.co/a/b/tree/v1', hub('a/b', 'v1')],
    ['ollama:qwen3', ollama('registry.ollama.ai', 'library', 'qwen3', 'latest')],
    ['ollama:me/mine:v1', ollama('registry.ollama.ai', 'me', 'mine', 'v1')],
    ['ollama:hf.co/a/b:Q8_0', ollama('hf.co', 'a', 'b', 'Q8_0')],
    ['ollama:localhost:5000/a/b', ollama('localhost:5000', 'a', 'b', 'latest')],
  ] as const)
    t.strictSame(parseModelName(text), name, text)
  t.match(parseModelName('https://example.com/a/b.gguf'), { kind: 'url' })
  t.match(parseModelName('https://huggingface.co/a/%zz'), { kind: 'url' })
  for (const text of [
    'a/b',
    '',
    7,
    'hf:',
    'hf:a/b/c',
    'hf:../b',
    'hf:a/b--c',
    'hf:a/b@../../x',
    'hf:a/b@',
    'hf:a/b:../x',
    'hf:a/b:/etc/passwd',
    'hf:a/b:c\\..\\d',
    'hf:a/b:',
    'ollama:',
    'ollama:../x',
    'ollama:a/b/c/d',
    'ollama:a:',
    'ollama:evil host/a/b',
    'https://',
  ])
    t.throws(() => parseModelName(text), { code: 'ERR_ARGUMENT' }, String(text))
})

t.test('quantizations by the names of files', async t => {
  for (const [stem, quantization] of [
    ['Qwen3-0.6B-Q4_K_M', 'Q4_K_M'],
    ['qwen2.5-0.5b-instruct-q4_k_m', 'Q4_K_M'],
    ['model.IQ4_XS', 'IQ4_XS'],
    ['UD-Q4_K_XL/m-UD-Q4_K_XL', 'UD-Q4_K_XL'],
    ['gpt-oss-20b-mxfp4', 'MXFP4'],
    ['m-fp16', 'F16'],
    ['BF16/m', 'BF16'],
    ['Q4_K_M/m-Q8_0', 'Q8_0'],
    ['tinyllama', ''],
  ] as const)
    t.equal(quantizationOf(stem), quantization, stem)
})

/** Names of what is selected, and the entry. */
function select(names: readonly string[], wanted?: string) {
  const { format, files, entry } = selectFiles(
    names.map(name => ({ name })),
    wanted,
    'hf:a/b',
  )
  return { format, names: files.map(({ name }) => name).sort(), entry }
}

t.test('folders of safetensors', async t => {
  const whole = ['config.json', 'model.safetensors', 'tokenizer.json']
  const others = ['model.fp16.safetensors', 'model.onnx', 'tf_model.h5', 'original/model.safetensors', 'x.py']
  t.strictSame(select([...whole, ...others]).names, whole)
  const rest = ['merges.txt', 'vocab.json', 'tokenizer.model', 'chat_template.jinja', 'hf_quant_config.json']
  const sentences = ['modules.json', '1_Pooling/config.json', '2_Dense/model.safetensors']
  t.strictSame(select([...whole, ...rest, ...sentences]).names, [...whole, ...rest, ...sentences].sort())
  t.match(select(['consolidated.safetensors', 'params.json', 'm.gguf']), {
    format: 'safetensors',
    names: ['consolidated.safetensors', 'params.json'],
    entry: '',
  })
  t.throws(() => select(['pytorch_model.bin']), {
    code: 'ERR_UNSUPPORTED',
    message: /no safetensors, GGUF or ONNX files, but pytorch_model\.bin/,
  })
})

t.test('GGUF', async t => {
  const parts = [1, 2].map(i => `Q8_0/m-Q8_0-0000${i}-of-00002.gguf`)
  const all = [
    'm-Q4_K_M.gguf',
    ...parts,
    'm-UD-Q4_K_XL.gguf',
    'mmproj-F16.gguf',
    'imatrix.gguf',
    'config.json',
  ]
  t.match(select(all), { format: 'gguf', names: ['m-Q4_K_M.gguf'], entry: 'm-Q4_K_M.gguf' })
  t.strictSame(select(all, 'q8_0'), { format: 'gguf', names: parts, entry: parts[0] })
  t.strictSame(select(all, parts[1]).names, parts, 'all parts of a part')
  t.equal(select(all, 'Q4_K_XL').entry, 'm-UD-Q4_K_XL.gguf')
  t.equal(select(all, 'mmproj-F16.gguf').entry, 'mmproj-F16.gguf')
  t.equal(select(['m-IQ2_XS.gguf', 'mmproj-F16.gguf']).entry, 'm-IQ2_XS.gguf', 'the only one')
  t.throws(() => select(all, 'Q4_K_N'), {
    code: 'ERR_ARGUMENT',
    message:
      "hf:a/b has no file, folder or quantization 'Q4_K_N' (did you mean 'Q4_K_M'?); it has quantizations",
  })
  t.throws(() => select(all, 'F16'), { code: 'ERR_ARGUMENT' }, 'of a projector only')
  t.throws(() => select(['a-Q3_K_S.gguf', 'b-Q2_K.gguf']), { message: /several GGUF models.*Q3_K_S, Q2_K/ })
  t.throws(() => select(['a-Q4_0.gguf', 'b-Q4_0.gguf'], 'Q4_0'), {
    message: /several models in Q4_0.*a-Q4_0/,
  })
  t.throws(() => select([parts[0]!], 'Q8_0'), { code: 'ERR_FORMAT', message: /1 of 2 parts/ })
})

t.test('ONNX', async t => {
  const top = ['config.json', 'tokenizer.json']
  const files = ['', '_q4', '_int8'].flatMap(end => [`onnx/model${end}.onnx`, `onnx/model${end}.onnx_data`])
  const all = [...top, ...files, 'onnx/model_q4.onnx_data_1', 'README.md']
  t.strictSame(select(all), {
    format: 'onnx',
    names: [...top, 'onnx/model.onnx', 'onnx/model.onnx_data'].sort(),
    entry: 'onnx/model.onnx',
  })
  t.strictSame(
    select(all, 'onnx/q4').names,
    [...top, 'onnx/model_q4.onnx', 'onnx/model_q4.onnx_data', 'onnx/model_q4.onnx_data_1'].sort(),
  )
  t.equal(select(all, 'onnx/q8').entry, 'onnx/model_int8.onnx')
  t.throws(() => select(all, 'onnx/q2'), {
    code: 'ERR_ARGUMENT',
    message: /no decoder in q2.*onnx\/model\.onnx/,
  })
  const genai = ['cpu/int4/genai_config.json', 'cpu/int4/model.onnx', 'cuda/model.onnx']
  t.strictSame(select(genai, 'cpu/int4'), { format: 'onnx', names: genai.slice(0, 2), entry: 'cpu/int4' })
})
