// Records as Java objects in a hash map. See ../turns.py.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;

class Turns {
    static final long M = 2147483647;
    static final class Item {
        final String text;
        int count;
        Item(String text) { this.text = text; }
    }
    static final HashMap<Integer, Item> records = new HashMap<>();
    static final String DIGITS = "0123456789abcdef";
    static long total;

    static void hex(StringBuilder out, long x) {
        for (int shift = 28; shift >= 0; shift -= 4) out.append(DIGITS.charAt((int) (x >> shift) & 15));
    }

    static String first(int i) {
        StringBuilder out = new StringBuilder();
        hex(out, (i * 48271L + 11) % M * 16807 % M);
        return out.toString();
    }

    static String text(int i) {
        StringBuilder out = new StringBuilder(1160);
        long x = (i * 48271L + 11) % M;
        for (int j = 0; j < 64; j++) {
            x = x * 16807 % M;
            hex(out, x);
            out.append("-field-").append((char) ('0' + j / 10)).append((char) ('0' + j % 10)).append(';');
        }
        return out.append(out, 0, 8).toString();
    }

    static void fail(String why) {
        System.err.println("MISMATCH: " + why);
        System.exit(1);
    }

    static void touch(int n, boolean hot, int turn) {
        for (int i = 0; i < n; i++) {
            int block = i / 32;
            if (hot != (block * 7919L % 1000 < 400) || !hot && block % 10 != turn % 10) continue;
            Item item = records.get(i);
            if (!item.text.startsWith(first(i)) || !item.text.endsWith(first(i))) fail("record " + i);
            if (i % 4 == 0) {
                item.count++;
                total++;
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        int n = Integer.parseInt(arguments[0]);
        for (int i = 0; i < n; i++) records.put(i, new Item(text(i)));
        System.out.println("k");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] words = line.split(" ");
            if (words[0].equals("q")) {
                long sum = 0;
                for (int i = 0; i < n; i++) {
                    if (!records.get(i).text.equals(text(i))) fail("record " + i);
                    sum += records.get(i).count;
                }
                if (sum != total) fail("counts");
                return;
            }
            touch(n, words[0].equals("r"), Integer.parseInt(words[1]));
            System.out.println(words[0]);
        }
    }
}
