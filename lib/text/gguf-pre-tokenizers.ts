// gguf-pre-tokenizers.ts: how text is split before byte-level BPE, by the name that a GGUF file gives it. The patterns are
// those of the tokenizer.json of the models.

interface PreTokenizer {
  /** Applied one after the other, each to the pieces of the one before. */
  readonly patterns: readonly string[]
  /** A piece that is a token is not split. */
  readonly ignoreMerges?: boolean
  /** Whether BOS is added where the file does not say it. */
  readonly addBos?: boolean
}

const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
const contractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
const breaks = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+'

/** The pattern of cl100k and those made after it; they differ in how many digits are taken together. */
const cl100k = (digits: string): string =>
  `${contractions}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${breaks}`

const qwen35 = `${contractions}|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|${breaks}`

/** The pattern of o200k and of those made after it. */
function o200k(digits: string, suffix: string): string {
  const [upper, lower] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]']
  const start = '[^\\r\\n\\p{L}\\p{N}]?'
  const words = `${start}${upper}*${lower}+${suffix}|${start}${upper}+${lower}*${suffix}`
  return `${words}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${breaks}`
}

const deepseek = [
  '\\p{N}{1,3}',
  '[一-龥぀-ゟ゠-ヿ]+',
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+' +
    `| ?[\\p{P}\\p{S}]+[\\r\\n]*|${breaks}`,
]

const named: readonly (readonly [readonly string[], PreTokenizer])[] = [
  [
    [
      'gpt-2',
      'phi-2',
      'mpt',
      'olmo',
      'jais',
      'trillion',
      'gigachat',
      'exaone4',
      'mellum',
      'modern-bert',
      'a.x-4.0',
    ],
    { patterns: [gpt2] },
  ],
  [['jina-es', 'jina-de', 'jina-v2-es', 'jina-v2-de'], { patterns: [gpt2] }],
  [
    ['llama3', 'llama-v3', 'llama-bpe', 'falcon3', 'falcon-h1', 'pixtral', 'midm-2.0', 'lfm2'],
    { patterns: [cl100k('\\p{N}{1,3}')], ignoreMerges: true, addBos: true },
  ],
  [['dbrx', 'smaug-bpe', 'glm4', 'chatglm-bpe'], { patterns: [cl100k('\\p{N}{1,3}')] }],
  [
    ['qwen2', 'deepseek-r1-qwen', 'stablelm2', 'hunyuan', 'megrez', 'kormo', 'solar-open', 'grok-2'],
    { patterns: [cl100k('\\p{N}')] },
  ],
  [['qwen35'], { patterns: [qwen35] }],
  [
    ['starcoder', 'refact', 'command-r', 'smollm', 'codeshell', 'exaone', 'minerva-7b'],
    { patterns: ['\\p{N}', gpt2] },
  ],
  [['gpt-4o', 'llama4', 'minimax-m2'], { patterns: [o200k('\\p{N}{1,3}', `${contractions}?`)] }],
  [['tekken'], { patterns: [o200k('\\p{N}', '')], ignoreMerges: true, addBos: true }],
  [['deepseek-v3', 'hunyuan-dense', 'joyai-llm'], { patterns: deepseek }],
  // Files that name none, from before the middle of 2024.
  [['default'], { patterns: ['[\\p{P}$+<=>^~|]+', gpt2, '\\p{N}+', '[0-9][0-9][0-9]'] }],
]

/** Pre-tokenizers by name. */
export const preTokenizers: ReadonlyMap<string, PreTokenizer> = new Map(
  named.flatMap(([names, preTokenizer]) => names.map(name => [name, preTokenizer] as const)),
)
