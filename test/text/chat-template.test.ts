// ChatTemplate: texts of transformers' apply_chat_template, templates of models, errors with what failed, limits.
import { readdirSync, readFileSync } from 'node:fs'
import t from 'tap'
import type { ChatMessage, ChatOptions } from '#lib/text/chat-options.js'
import { ChatTemplate } from '#lib/text/chat-template.js'
import { dataPath, noLanguageData, readJson } from '../fixtures/text/golden-data.js'

interface Conversation {
  readonly messages: ChatMessage[]
  readonly tools?: boolean
  readonly add_generation_prompt?: boolean
  readonly continue_final_message?: boolean
  readonly kwargs?: Record<string, unknown>
}

interface Golden {
  readonly special_tokens: Record<string, string>
  readonly tools: object[]
  readonly conversations: Record<string, Conversation>
  readonly templates: Record<string, Record<string, { text?: string; error?: string; message?: string }>>
  readonly strftime: { now: string; template: string; text: string }
}

const golden = (): Golden => readJson('lm-golden', 'templates', 'golden.json')

function optionsOf(
  { special_tokens: specialTokens, tools }: Golden,
  conversation: Conversation,
): ChatOptions {
  return {
    specialTokens,
    addGenerationPrompt: conversation.add_generation_prompt ?? false,
    continueFinalMessage: conversation.continue_final_message ?? false,
    variables: conversation.kwargs ?? {},
    ...(conversation.tools && { tools }),
  }
}

t.test('golden texts', { skip: noLanguageData }, async t => {
  const all = golden()
  let count = 0
  for (const [name, texts] of Object.entries(all.templates)) {
    const template = await ChatTemplate.parse(
      readFileSync(dataPath('lm-golden', 'templates', `${name}.jinja`), 'utf8'),
    )
    for (const [conversation, { text, error, message }] of Object.entries(texts)) {
      const { messages } = all.conversations[conversation]!
      const render = (): string => template.render(messages, optionsOf(all, all.conversations[conversation]!))
      const label = `${name} ${conversation}`
      count++
      if (error === 'TemplateError')
        t.throws(render, { code: 'ERR_ARGUMENT', message: `chat template: ${message}` }, label)
      else if (error) t.throws(render, { name: 'SparkError', message: /^chat template: / }, label)
      else t.equal(render(), text, label)
    }
  }
  t.equal(count, 132)
  const { now, template, text } = all.strftime
  t.equal((await ChatTemplate.parse(template)).render([], { now: new Date(now) }), text)
})

t.test('templates of models', { skip: noLanguageData }, async t => {
  const messages = [
    { role: 'user', content: 'Hi there' },
    { role: 'assistant', content: 'Hello you' },
    { role: 'user', content: 'Go on' },
  ]
  const parameters = {
    type: 'object',
    properties: { city: { type: 'string', description: 'Name' } },
    required: [],
  }
  const tools = [{ type: 'function', function: { name: 'weather', description: 'Tells it', parameters } }]
  const files = readdirSync(dataPath('llm', 'templates')).filter(name => name.endsWith('.jinja'))
  t.equal(files.length, 58)
  for (const file of files) {
    const template = await ChatTemplate.parse(readFileSync(dataPath('llm', 'templates', file), 'utf8'))
    const options = {
      tools,
      addGenerationPrompt: true,
      specialTokens: { bos_token: '<s>', eos_token: '</s>' },
      // firefunction's template asks for these by names of its own.
      variables: { functions: 'none', datetime: 'now' },
    }
    const text = template.render(messages, options)
    for (const part of ['Hi there', 'Go on']) t.ok(text.includes(part), `${file} shows ${part}`)
  }
})

const render = async (
  source: string,
  messages: ChatMessage[] = [],
  options: ChatOptions = {},
): Promise<string> => (await ChatTemplate.parse(source)).render(messages, options)

t.test("Python's values", async t => {
  for (const [source, text] of [
    ["{{ [1, 1.0, 'a', none, true, {'k': \"it's\"}] }}", "[1, 1.0, 'a', None, True, {'k': \"it's\"}]"],
    ['{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 6 / 2 }} {{ 2 ** -1 }}', '3 -4 2 3.0 0.5'],
    ['{{ {1: "a", 16384: "b"}[16384] }}', 'b'],
    ["{{ '<{}|{n:>3}|{:03d}>'.format('x', 7, n='y') }}", '<x|  y|007>'],
    ["{{ '%s %d%% %5.2f' % ('a', 3, 2.5) }}", 'a 3%  2.50'],
    [
      "{{ missing }}{{ missing is defined }}{{ missing | default('d') }}{{ [] | first is defined }}",
      'FalsedFalse',
    ],
    ["{{ {'b': 1, 'a': 2} | dictsort }}", "[('a', 2), ('b', 1)]"],
    ["{{ '😀a'[0] }}{{ '😀a' | length }}{{ '😀ab'[::-1] }}{{ 'abc'[-2:] }}", '😀2ba😀bc'],
    ["{{ 'aXbXc'.split('X', 1) }}{{ ' a  b '.split() }}{{ 'xxaxx'.strip('x') }}", "['a', 'bXc']['a', 'b']a"],
    ['{% for i in [1, 2] %}{% set x = i %}{% endfor %}{{ x is defined }}', 'False'],
    [
      '{% set ns = namespace(n=0) %}{% for i in range(5) if i % 2 %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}',
      '4',
    ],
    [
      '{% macro m(a, b=none) %}{{ a }}{{ b is none }}{% endmacro %}{{ m(1) }}{{ m(1, b=2) }}{{ m(none, none) }}',
      '1True1FalseNoneTrue',
    ],
    ['{% for i in [] %}x{% else %}empty{% endfor %}', 'empty'],
    ["{{ {'é': [1, {}], 'z': []} | tojson(indent=2) }}", '{\n  "é": [\n    1,\n    {}\n  ],\n  "z": []\n}'],
    [
      "{{ 'é' | tojson(ensure_ascii=true) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}",
      '"\\u00e9"{"a":2,"b":1}',
    ],
    ['a\n{%- if true %}  b{% endif %}\n  {% if true %}\nc{% endif %}\n', 'a  bc'],
    ['{% raw %}{{ x }} {% if %}{% endraw %}!', '{{ x }} {% if %}!'],
    [
      "{{ 'constructor' | default }}{{ {}['constructor'] is defined }}{{ {}.__proto__ is defined }}",
      'constructorFalseFalse',
    ],
  ] as const)
    t.equal(await render(source).catch(String), text, source.replaceAll('#', ''))
})

t.test('numbers, nested values and undefined of JavaScript', async t => {
  const messages = [{ role: 'user', content: 'x', n: 1, f: 1.5, u: undefined, o: { a: [null] } }]
  t.equal(
    await render('{{ messages[0] }}', messages),
    "{'role': 'user', 'content': 'x', 'n': 1, 'f': 1.5, 'o': {'a': [None]}}",
  )
  t.equal(await render('{{ tools is none }}{{ x }}', [], { variables: { x: 2 } }), 'True2')
})

t.test('errors say what in the template failed', async t => {
  const messages = [{ role: 'user', content: null }]
  for (const [source, code, message] of [
    [
      "{{ 'a' + messages[0].content }}",
      'ERR_FORMAT',
      /str and None can not be combined by \+, in 'a' \+ messages\[0\]\.content$/,
    ],
    ['{% for t in tools %}{% endfor %}', 'ERR_FORMAT', /None can not be iterated, in for t in tools$/],
    ['{{ a.b.c }}', 'ERR_FORMAT', /'a' is undefined and has no attribute 'b', in a\.b$/],
    ['{{ messages | sparkle }}', 'ERR_FORMAT', /the filter 'sparkle' is not known, in messages \| sparkle$/],
    ['{{ x is shiny }}', 'ERR_FORMAT', /the test 'shiny' is not known, in x is shiny$/],
    ['{{ nothing() }}', 'ERR_FORMAT', /'nothing' is undefined and can not be called, in nothing\(\)$/],
    ['{% set a, b = [1] %}', 'ERR_FORMAT', /1 values for the names a, b, in set/],
    ['{{ 1 / 0 }}', 'ERR_FORMAT', /division by zero, in 1 \/ 0$/],
    ["{{ raise_exception('Only users!') }}", 'ERR_ARGUMENT', /^chat template: Only users!$/],
    ["{{ {'a': range} | tojson }}", 'ERR_FORMAT', /a function can not be written as JSON/],
  ] as const)
    await t.rejects(render(source, messages), { name: 'SparkError', code, message }, String(message))
  for (const source of ['{% if %}', '{% for x in y %}', '{{ 1 + }}', '{% unknown %}', '{{ "a }}', '{#', '{{'])
    await t.rejects(
      render(source),
      { name: 'SparkError', code: 'ERR_FORMAT', message: /syntax error/ },
      'syntax',
    )
})

t.test('a hostile template neither hangs nor fills the memory', async t => {
  const doubling =
    '{% set ns = namespace(x="ab") %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}'
  const nesting =
    '{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}'
  for (const source of [
    '{{ range(1000000000) }}',
    "{{ 'x' * 1000000000 }}",
    '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}',
    doubling,
    `${nesting}{{ ns.x }}`,
    `${nesting}{{ ns.x | tojson }}`,
    `${nesting}{{ ns.x == ns.x + [] }}{{ [ns.x] == [[ns.x[0], ns.x[1]]] }}${nesting}{{ ns.x | string }}`,
    '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}',
    "{{ 'x'.rjust(1000000000) }}",
    "{{ '%999999999d' % 1 }}",
    "{{ 'a' | indent(999999999, true) }}",
    '{% set l = [] %}{% set _ = l.append(l) %}{{ l }}',
    `{{ ${'('.repeat(100_000)} }}`,
    `{{ ${'['.repeat(100_000)}${']'.repeat(100_000)} }}`,
    'x'.repeat(1_000_001),
    `{{ 1 }}${' '.repeat(5000)}`,
  ])
    await t.rejects(render(source), { name: 'SparkError', code: /ERR_(RANGE|FORMAT)/ }, source.slice(0, 60))
  let deep: unknown = 'x'
  for (let i = 0; i < 200; i++) deep = [deep]
  await t.rejects(render('{{ x }}', [], { variables: { x: deep } }), { code: 'ERR_RANGE' })
})

t.test('a message to continue', async t => {
  const source =
    '{% for m in messages %}[{{ m.content if m.content is string else m.content[0].text }}]{% endfor %}'
  const messages = [
    { role: 'user', content: 'list' },
    { role: 'assistant', content: [{ type: 'text', text: '1. one' }] },
  ]
  t.equal(await render(source, messages, { continueFinalMessage: true }), '[list][1. one')
  t.same(messages[1]!.content, [{ type: 'text', text: '1. one' }], 'the messages are not changed')
  for (const final of [
    { role: 'assistant', content: null },
    { role: 'assistant', content: [{ type: 'image' }] },
  ])
    await t.rejects(render(source, [final], { continueFinalMessage: true }), { code: 'ERR_ARGUMENT' })
  await t.rejects(render('constant', messages, { continueFinalMessage: true }), {
    code: 'ERR_ARGUMENT',
    message: /does not show the final message/,
  })
})

t.test('what is refused', async t => {
  const template = await ChatTemplate.parse('{{ messages }}')
  for (const [messages, options, message] of [
    ['hi', {}, /messages must be a list/],
    [['hi'], {}, /messages\[0\] must be a message/],
    [[{ content: 'x' }], {}, /messages\[0\]\.role/],
    [[], { tools: 'x' }, /tools must be a list/],
    [[], { tools: ['x'] }, /tools\[0\]/],
    [[], { documents: {} }, /documents/],
    [[], { addGenerationPrompt: 1 }, /addGenerationPrompt/],
    [[], { addGenerationPrompt: true, continueFinalMessage: true }, /continueFinalMessage/],
    [[], { now: new Date(Number.NaN) }, /now/],
    [[], { specialTokens: [] }, /specialTokens/],
    [
      [],
      { add_generation_prompt: true },
      /no option 'add_generation_prompt' \(did you mean 'addGenerationPrompt'\?\)/,
    ],
  ] as const)
    t.throws(() => template.render(messages as never, options as never), { code: 'ERR_ARGUMENT', message })
  await t.rejects(ChatTemplate.parse(3 as never), { code: 'ERR_ARGUMENT' })
  t.throws(() => template.render([], { variables: { f: () => 1 } }), {
    code: 'ERR_FORMAT',
    message: /f is a function/,
  })
})
