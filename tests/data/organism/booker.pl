#!/usr/bin/perl -w
# Books, cancels, charges and notifies: `booker.pl LEDGER`.
#
# Each request is a line of LEDGER, on disk before the answer: its name and its value. A booking is numbered
# by its line. No charge succeeds without a file `accept-charge`, and nothing does whose name is in a file
# `refuse-NAME`. No answer is given while there is a file `hold-NAME-VALUE`.
#
# In Perl with one module, because the tests start it hundreds of times: Python takes several times as long to
# start.

use strict;
use Fcntl ();

my $NS  = "urn:example:booking";
my $how = Fcntl::O_RDWR() | Fcntl::O_CREAT() | Fcntl::O_APPEND() | Fcntl::O_SYNC();
sysopen(my $ledger, $ARGV[0], $how, 0666) or die "$ARGV[0]: $!";

# Writes a line and returns its number.
sub note {
    my $line = shift . "\n";
    syswrite($ledger, $line) == length $line or die "a line was cut short";
    # Other processes may have appended to it since.
    my $end = sysseek($ledger, 0, Fcntl::SEEK_CUR());
    sysseek($ledger, 0, Fcntl::SEEK_SET()) or die "the ledger: $!";
    my $all = "";
    while (length $all < $end) {
        sysread($ledger, $all, $end - length $all, length $all) or die "the ledger is shorter: $!";
    }
    return $all =~ tr/\n//;
}

sub answer {
    my ($request) = @_;
    my ($name)    = $request =~ /^<(?:\w+:)?([a-z]+)/;
    my ($value)   = $request =~ /<(?:\w+:)?(?:n|number)(?: [^>]*)?>(.*?)<\//;
    my $line      = note("$name $value");
    select(undef, undef, undef, 0.02) while -e "hold-$name-$value";
    return qq|<booking-failed xmlns="$NS"><number>$value</number></booking-failed>| if -e "refuse-$name";
    return qq|<notified xmlns="$NS"><n>$value</n></notified>| if -e "accept-$name";
    return qq|<booked xmlns="$NS"><number>$value-$line</number></booked>| if $name eq "book";
    return qq|<cancelled xmlns="$NS"><number>$value</number></cancelled>| if $name eq "cancel";
    return qq|<charge-failed xmlns="$NS"><n>$value</n></charge-failed>|   if $name eq "charge";
    return qq|<notified xmlns="$NS"><n>$value</n></notified>|             if $name eq "notify";
    die "no answer to `$name`\n";
}

binmode $_ for *STDIN, *STDOUT, *STDERR;
my $rest = "";
while (sysread(STDIN, $rest, 65536, length $rest)) {
    my @frames = split /\0/, $rest, -1;
    $rest = pop @frames;
    for my $frame (@frames) {
        next if $frame =~ /^<cancel/;
        my ($request) = $frame =~ /<e:message[^>]*>.*?<\/e:meta>(.*?)<\/e:message>/s;
        my $reply = answer($request) . "\0";
        while (length $reply) {
            my $written = syswrite(STDOUT, $reply) // die "standard output: $!";
            substr($reply, 0, $written) = "";
        }
    }
}
