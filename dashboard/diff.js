// What changed between two texts, line by line.

const MOST_CELLS = 4_000_000;

/** Lines as `[sign, text]`, sign being " ", "-" or "+": the longest common subsequence stays. */
export function diff(before, after) {
  const [a, b] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const kept = (lines) => lines.map((line) => [" ", line]);
  const middle = changed(a.slice(head, a.length - tail), b.slice(head, b.length - tail));
  return [...kept(a.slice(0, head)), ...middle, ...kept(a.slice(a.length - tail))];
}

function changed(a, b) {
  if (a.length * b.length > MOST_CELLS) return [...a.map((line) => ["-", line]), ...b.map((line) => ["+", line])];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] =
        a[i] === b[j]
          ? longest[(i + 1) * width + j + 1] + 1
          : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  return walk(a, b, longest, width);
}

function walk(a, b, longest, width) {
  const lines = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    const isSame = i < a.length && j < b.length && a[i] === b[j];
    const goes = j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1]);
    if (isSame) {
      lines.push([" ", a[i]]);
      i++;
      j++;
    } else if (goes) lines.push(["-", a[i++]]);
    else lines.push(["+", b[j++]]);
  }
  return lines;
}
