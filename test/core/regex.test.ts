// Regular expressions in the syntax of Python's re, in linear time.
import t from 'tap'
import { Regex } from '#lib/core/regex.js'
import { randomGenerator } from '../fixtures/values/random.js'

/** Pattern, what it matches as a whole, what it does not: by Python 3.11. */
const rows: readonly (readonly [pattern: string, yes: readonly string[], no: readonly string[]])[] = [
  ['', [''], ['a']],
  ['a|bc', ['a', 'bc'], ['b', 'abc']],
  ['a{2}b{,2}c{1,}d{,}', ['aac', 'aabbccdd'], ['ac', 'aabbbc', 'aab']],
  ['a{ {x} {} {1', ['a{ {x} {} {1'], ['a']],
  ['(?:ab?)*?', ['', 'aba'], ['b']],
  ['(?:|a)+b', ['b', 'aab'], ['a']],
  ['[]a]+', [']a'], ['b', '']],
  ['[^]a]', ['b', '\n'], [']', 'a']],
  ['[a-c-]', ['b', '-'], ['d']],
  ['[\\w.-]+', ['a_1.-é'], [' ']],
  ['[^\\W_]', ['a'], ['_', '.']],
  ['[\\b\\101\\x62]+', ['\bAb'], ['a']],
  ['.', ['a', '\r', '😀'], ['\n', '']],
  ['(?s).', ['\n'], ['']],
  ['\\d+', ['12', '٣'], ['a']],
  ['\\s', [' ', '\t', '\x1c', '\x85', '\u2028'], ['\ufeff', 'a']],
  ['\\x61\\u00e9\\U0001f600\\0\\07\\141', ['aé😀\0\x07a'], ['a']],
  ['\\.\\-\\_\\n\\a', ['.-_\n\x07'], ['x-_\n\x07']],
  ['^a$', ['a'], ['ba']],
  ['a$(?s:.*)', ['a', 'a\n'], ['a\nb', 'ab']],
  ['a\\Z(?s:.*)', ['a'], ['a\n']],
  ['(?m)a$\n^b', ['a\nb'], ['ab']],
  ['\\bab\\b.*', ['ab', 'ab c'], ['abc']],
  ['a\\Bb', ['ab'], ['a b']],
  ['\\B', [], ['']],
  ['(?i)aB[c-e]é', ['AbDÉ', 'abcé'], ['abfé']],
  ['(?i)[^a]', ['b'], ['a', 'A']],
  ['(?i)(?s)a.', ['A\n'], ['b\n']],
  ['a(?i:b)c', ['aBc'], ['aBC']],
  ['(?i:a(?-i:b))', ['Ab'], ['AB']],
  ['(?#a comment)a', ['a'], ['']],
  ['(?P<layer>\\d)\\.', ['1.'], ['.']],
  ['(?!.*visual).*(?:q|v)_proj', ['text.q_proj'], ['visual.q_proj', 'q_proj.x']],
  ['^(model(?=\\.).*\\.(q_proj|o_proj))$', ['model.0.o_proj'], ['models.0.o_proj']],
  ['a(?!b(?!c)).*', ['a', 'abc', 'ac'], ['ab', 'abd']],
  ['.*(?<=ab|\\.d)c(?<!xc)', ['abc', '.dc'], ['bc', 'xc']],
  ['(?<=a)b', [], ['b', 'ab']],
]

t.test('what Python matches', async t => {
  for (const [pattern, yes, no] of rows) {
    const regex = new Regex('pattern', pattern)
    for (const text of yes) t.ok(regex.matches(text), `${pattern} matches ${encodeURI(text)}`)
    for (const text of no) t.notOk(regex.matches(text), `${pattern} does not match ${encodeURI(text)}`)
  }
})

t.test('groups', async t => {
  t.equal(new Regex('pattern', 'a(.*)(b+)').lastGroup('aabbb'), 'b')
  t.equal(new Regex('pattern', 'a(.*?)(b+)').lastGroup('aabbb'), 'bbb')
  t.equal(new Regex('pattern', '(?:(a)|b)*').lastGroup('aab'), 'a', 'the last time round')
  t.equal(new Regex('pattern', '(a)').lastGroup('b'), undefined)
  t.equal(new Regex('pattern', '(?:|a)*(b)').lastGroup('aab'), 'b')
})

t.test('what is refused', async t => {
  const refused = (pattern: string, reason: string) =>
    t.throws(() => new Regex('target_modules', pattern, 'ERR_FORMAT'), {
      code: 'ERR_FORMAT',
      message: new RegExp(
        `^target_modules: Invalid regular expression '.*': ${reason}.*; list the names instead$`,
      ),
    })
  for (const pattern of ['\\1', '(a)\\1', '(?P<a>b)(?P=a)']) refused(pattern, 'a reference back to a group')
  refused('(?>a)', 'an atomic group, which takes more than linear time, at position 3')
  refused('(a)(?(1)b)', 'a condition on a group')
  refused('a++', 'a possessive repetition')
  refused('(?x)a b', 'an unknown extension \\(\\?x')
  refused('(?<a>b)', 'an unknown extension \\(\\?<')
  refused('(?', 'an unknown extension')
  refused('a(?i)', 'flags that are not at the start')
  refused('(', 'a group without its closing')
  refused(')', 'a closing parenthesis without')
  refused('(?P<1>a)', 'a group that cannot have the name')
  refused('(?P<a>a)(?P<a>a)', 'a group that cannot have the name')
  refused('[a', 'a set without its closing')
  refused('[b-a]', 'a range b-a that runs backwards')
  refused('[\\w-a]', 'a range of classes')
  for (const pattern of ['*', 'a|+', '{2}']) refused(pattern, 'a repetition of nothing')
  refused('a**', 'a repetition of a repetition')
  refused('a{2,1}', 'a repetition whose limits')
  refused('\\', 'a backslash with nothing')
  for (const pattern of ['\\q', '[\\8]', '\\777']) refused(pattern, 'an escape that means nothing')
  for (const pattern of ['\\xg', '\\u12', '\\Uffffffff'])
    refused(pattern, 'an escape without its hexadecimal')
  refused('(?<=a+)b', 'a look-behind that has no fixed length')
  refused('(?<=a|bc)b', 'a look-behind that has no fixed length')
  refused('('.repeat(300) + ')'.repeat(300), 'groups nested more than')
  for (const pattern of ['(a{999}){999}', '(){999999999}', 'a{99999999999999999999}', '(?=a{5000})']) {
    refused(pattern, 'repetitions that make it too large')
  }
})

t.test('long patterns and names', async t => {
  const name = 'model.layers.'.repeat(12_000)
  t.ok(new Regex('pattern', name).matches(name))
  t.notOk(new Regex('pattern', `${name}x`).matches(name))
  t.ok(new Regex('pattern', '(?:[^.]+\\.)+').matches(name))
  t.equal(new Regex('pattern', '(.*)').lastGroup(name), name)
})

t.test('what takes a backtracking matcher years', async t => {
  const name = 'a'.repeat(3000)
  for (const pattern of [
    '(a+)+b',
    '(a*)*(?:b|c)',
    '(?:a|a|aa)*[^a]',
    '(?=(a+)+b)a*',
    '(?!(a+)+$)a*',
    '(a?){90}b?c',
  ]) {
    t.notOk(new Regex('pattern', pattern).matches(name), pattern)
  }
  t.ok(new Regex('pattern', '(a?){90}a{90}').matches('a'.repeat(90)))
})

t.test('random patterns match what RegExp matches', async t => {
  const seed = Date.now() % 2 ** 31
  const random = randomGenerator(seed)
  t.comment(`seed ${seed}`)
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!
  const atoms = ['a', 'b', '.', '[ab]', '[^a]', '\\.', '\\w', '^', '$', '\\b', '[a-c.]', '(?<=a)', '(?<!b)']
  const counts = ['', '', '', '', '*', '+', '?', '{2}', '{1,2}', '{0,1}', '*?', '+?', '{2,}']
  const groups = ['(', '(?:', '(?=', '(?!', '(?:']
  const choice = (depth: number): string =>
    Array.from({ length: pick([1, 1, 2]) }, () => sequence(depth)).join('|')
  const sequence = (depth: number): string =>
    Array.from({ length: pick([0, 1, 2, 3]) }, () => piece(depth)).join('')
  const piece = (depth: number): string => {
    const nested = depth > 0 && random() < 0.4
    const atom = nested ? `${pick(groups)}${choice(depth - 1)})` : pick(atoms)
    return /^(\^|\$|\\b|\(\?[=!<])/.test(atom) ? atom : atom + pick(counts)
  }
  const failures: string[] = []
  for (let i = 0; i < 3000; i++) {
    const pattern = choice(2)
    const [ours, theirs] = [new Regex('pattern', pattern), new RegExp(`^(?:${pattern})$`, 'u')]
    for (let j = 0; j < 5; j++) {
      const text = Array.from({ length: pick([0, 1, 2, 3, 5, 7]) }, () => pick(['a', 'b', 'c', '.'])).join('')
      if (ours.matches(text) !== theirs.test(text)) failures.push(`/${pattern}/ on '${text}'`)
    }
  }
  t.same(failures, [])
})
