// A program of a unit with exceptions and one without: each has functions of its own under the same names.
int with_exceptions();
int without_exceptions();

int main() {
    if (const int claim = with_exceptions()) return claim;
    return without_exceptions();
}
